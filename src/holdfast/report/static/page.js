"use strict";
(() => {
  let data = JSON.parse(document.getElementById("data").textContent);
  const views = new Map(); // a chart's element to what vegaEmbed gave
  const stored = (key, value) => {
    try {
      if (value === undefined) return sessionStorage.getItem("holdfast-" + key);
      sessionStorage.setItem("holdfast-" + key, value);
    } catch { /* a page from disk may not be allowed to */ }
    return null;
  };
  const hidden = new Set(JSON.parse(stored("hidden") || "[]"));

  // Themes.

  const root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)");
  const theme = () => root.dataset.theme || (system.matches ? "dark" : "light");
  const offer = () => {
    for (const button of document.querySelectorAll("[data-do=theme]")) {
      button.textContent = theme() === "dark" ? "Light" : "Dark";
      button.setAttribute("aria-label", `Change to ${theme() === "dark" ? "light" : "dark"} colours`);
    }
  };
  const choose = (which) => {
    if (which) { root.dataset.theme = which; stored("theme", which); }
    offer();
    for (const node of [...views.keys()]) draw(node);
  };

  // Charts.

  const shown = () => data.methods.filter((label) => !hidden.has(label));
  const rows = (name) => {
    const columns = data.tables[name];
    const names = Object.keys(columns);
    return columns[names[0]].map((_, index) => Object.fromEntries(names.map((key) => [
      key, key === "method" ? data.methods[columns[key][index]] : columns[key][index],
    ])));
  };
  async function draw(node) {
    const { spec, tables } = data.charts[node.dataset.chart];
    views.get(node)?.finalize();
    views.set(node, { finalize() {} });
    const params = spec.params.map((param) => param.name === "shown" ? { ...param, value: shown() } : param);
    const datasets = Object.fromEntries(tables.map((name) => [name, rows(name)]));
    const drawn = await vegaEmbed(node, { ...spec, params, datasets }, {
      actions: false, renderer: "svg", config: data.themes[theme()], tooltip: { theme: "custom" },
    });
    views.set(node, drawn);
    node.dataset.drawn = "yes";
  }
  const near = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (!entry.isIntersecting) continue;
      near.unobserve(entry.target);
      if (!views.has(entry.target)) draw(entry.target);
    }
  }, { rootMargin: "100%" }); // a screen ahead

  // The legend.

  function filter() {
    for (const { view } of views.values()) view?.signal("shown", shown()).runAsync();
    for (const row of document.querySelectorAll("tr[data-method]")) {
      row.classList.toggle("off", hidden.has(data.methods[Number(row.dataset.method)]));
    }
    for (const box of document.querySelectorAll(".legend input")) {
      box.checked = !hidden.has(data.methods[Number(box.value)]);
    }
    stored("hidden", JSON.stringify([...hidden]));
  }

  // A chart's numbers as a table, made when asked for.

  function tabulate(details) {
    const box = details.querySelector(".scroll");
    const { spec, tables } = data.charts[details.dataset.numbers];
    const points = rows(tables[0]);
    const written = JSON.stringify(spec); // charts may share a table: show the columns of this one
    const names = Object.keys(points[0] || {}).filter((name) => written.includes(`"field":"${name}"`));
    const table = document.createElement("table");
    const line = (tag, texts, parent) => {
      const tr = parent.insertRow();
      texts.forEach((text, index) => {
        const cell = document.createElement(index && tag === "td" ? "td" : "th");
        cell.scope = tag === "th" ? "col" : "row";
        cell.textContent = typeof text === "number" ? Number(text.toPrecision(5)) : text ?? "–";
        tr.append(cell);
      });
    };
    table.createCaption().textContent = details.dataset.title;
    line("th", names, table.createTHead());
    const body = table.createTBody();
    for (const point of points) {
      if (!hidden.has(point.method)) line("td", names.map((name) => point[name]), body);
    }
    box.replaceChildren(table);
  }

  function arm() {
    offer();
    for (const node of document.querySelectorAll(".chart")) if (!views.has(node)) near.observe(node);
    filter();
  }
  document.addEventListener("click", (event) => {
    const what = event.target.closest("[data-do]")?.dataset.do;
    if (what === "theme") choose(theme() === "dark" ? "light" : "dark");
    if (what === "all") { hidden.clear(); filter(); }
    if (what === "none") { data.methods.forEach((label) => hidden.add(label)); filter(); }
  });
  document.addEventListener("change", (event) => {
    if (!event.target.matches(".legend input")) return;
    const label = data.methods[Number(event.target.value)];
    if (event.target.checked) hidden.delete(label); else hidden.add(label);
    filter();
  });
  document.addEventListener("toggle", (event) => {
    if (event.target.open && event.target.dataset.numbers) tabulate(event.target);
  }, true);
  system.addEventListener("change", () => choose());
  addEventListener("beforeprint", () => {
    for (const node of document.querySelectorAll(".chart")) if (!views.has(node)) draw(node);
  });

  // While runs go on: ask for news, and put them in place.

  async function renew(text) {
    const next = new DOMParser().parseFromString(text, "text/html");
    const before = data;
    data = JSON.parse(next.getElementById("data").textContent);
    const old = new Map([...views].map(([node, drawn]) => [node.dataset.chart, [node, drawn]]));
    const open = [...document.querySelectorAll("details[open][id]")].map((details) => details.id);
    const page = next.getElementById("page");
    for (const node of page.querySelectorAll(".chart")) {
      const id = node.dataset.chart;
      const [kept, drawn] = old.get(id) || [];
      const same = JSON.stringify(before.charts[id]) === JSON.stringify(data.charts[id]);
      if (!drawn?.view || !same) continue;
      for (const name of data.charts[id].tables) drawn.view.data(name, rows(name));
      drawn.view.runAsync();
      node.replaceWith(kept);
      old.delete(id);
    }
    for (const [node, drawn] of old.values()) { drawn.finalize(); views.delete(node); }
    document.getElementById("page").replaceWith(page);
    document.title = next.title;
    for (const id of open) document.getElementById(id)?.setAttribute("open", "");
    arm();
  }
  async function follow(seconds) {
    let tag = "";
    for (;;) {
      await new Promise((done) => setTimeout(done, 1000 * seconds));
      try {
        const answer = await fetch(location.href, { headers: tag ? { "If-None-Match": tag } : {}, cache: "no-store" });
        if (answer.status === 200) {
          tag = answer.headers.get("ETag") || "";
          await renew(await answer.text());
        }
      } catch { return; } // whoever served it has gone
    }
  }

  if (stored("theme")) root.dataset.theme = stored("theme");
  arm();
  if (root.dataset.every && location.protocol === "http:") follow(Number(root.dataset.every));
})();
