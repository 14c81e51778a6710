"""Many streams behind one door: requests in, answers out, state kept. No framework is needed."""
