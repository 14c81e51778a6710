"""What a page holds, as a reader of its HTML finds it."""

import json
import re
from html.parser import HTMLParser


class Outline(HTMLParser):
    """What a screen reader goes by: headings, tables, controls; and every address."""

    VOID = ("meta", "link", "input", "br", "wbr", "progress")

    def __init__(self, text):
        super().__init__()
        self.headings, self.tables, self.addresses, self.ids = [], [], [], []
        self.open = []
        self.handlers = []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self.handlers += [name for name in given if name.startswith("on")]
        self.addresses += [given[name] for name in ("href", "src") if name in given]
        self.ids += [given["id"]] if "id" in given else []
        if re.fullmatch(r"h\d", tag):
            self.headings.append(int(tag[1]))
        if tag == "table":
            self.tables.append({"caption": False, "scopes": [], "cells": 0, "rows": []})
        if self.tables and "table" in self.open:
            table = self.tables[-1]
            table["caption"] |= tag == "caption"
            if tag == "th":
                table["scopes"].append(given.get("scope"))
            if tag == "tr":
                table["rows"].append([])
            if tag in ("th", "td"):
                table["rows"][-1].append("")
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag in self.open:
            while self.open.pop() != tag:
                pass

    def handle_data(self, text):
        if {"td", "th"} & set(self.open) and self.tables[-1]["rows"]:
            self.tables[-1]["rows"][-1][-1] += text


def data_of(text):
    (content,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)
    return json.loads(content)
