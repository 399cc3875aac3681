"use strict";
// The actions of people: a form below the page, and a dialog that shows what an action does before it is done. All
// text from the server becomes textContent.
(() => {
  const base = new URL("actions/", document.baseURI);
  const labels = { key: "Key", to: "Who leads next", session: "Session (pid)", group: "Group", shard: "Shard", node: "Node", lease: "Lease", mailbox: "Mailbox", entity: "Entity", number: "Number" };
  let state = null, confirm = "";

  function make(name, properties, ...children) {
    const e = document.createElement(name);
    for (const [key, value] of Object.entries(properties || {})) {
      if (key in e) e[key] = value;
      else e.setAttribute(key, value);
    }
    e.append(...children);
    return e;
  }

  async function call(path, body) {
    const answer = await fetch(new URL(path, base), body === undefined ? { headers: { Accept: "application/json" } } : {
      method: "POST", headers: { "Content-Type": "application/json", "Pglatch-Action": "1" }, body: JSON.stringify(body),
    });
    const data = answer.status === 204 ? {} : await answer.json();
    if (answer.status === 401) throw new Error("You are not signed in any more: load the page again.");
    if (!answer.ok && !data.changed) throw new Error(data.detail || answer.statusText);
    return data;
  }

  // The section.
  const who = make("span"), out = make("button", { type: "button", id: "act-out" }, "Sign out");
  const what = make("select", { id: "act-what" });
  const fields = make("span", { className: "who", id: "act-fields" });
  const said = make("p", { className: "said", id: "act-said" });
  said.setAttribute("role", "status");
  const form = make("form", { id: "act-form" }, make("label", {}, "Action ", what), fields, make("button", { type: "submit", id: "act-show" }, "Show what it does"));
  const rows = make("tbody");
  const audit = make("div", { className: "scroll", tabIndex: 0 }, make("table", {}, make("caption", {}, "What people did"),
    make("thead", {}, make("tr", {}, ...["When (UTC)", "Who", "What", "Why", "Outcome"].map((t) => make("th", { scope: "col" }, t)))), rows));
  audit.setAttribute("role", "region");
  audit.setAttribute("aria-label", "What people did");
  const section = make("section", { className: "actions", id: "actions" }, make("h2", { id: "act-title" }, "Act"),
    make("p", { className: "who" }, who, out), form, said, audit);
  section.setAttribute("aria-labelledby", "act-title");
  const footer = document.querySelector("footer");
  footer.before(section);
  const keys = footer.querySelector(".keys");
  if (keys) keys.append(", ", make("kbd", {}, "a"), " act");

  // The dialog.
  const title = make("h2", { id: "confirm-title" }), effect = make("ul", { tabIndex: 0, id: "confirm-effect" }), changed = make("p", { className: "changed" });
  effect.setAttribute("aria-label", "What it does");
  changed.setAttribute("role", "alert");
  const why = make("input", { id: "confirm-why", required: true, maxLength: 380, autocomplete: "off", size: 40 });
  const go = make("button", { type: "submit", className: "do", id: "confirm-do" }, "Do it");
  const dialog = make("dialog", { className: "confirm", id: "confirm" }, make("form", { method: "dialog" }, title, changed, effect,
    make("label", {}, "Why, for the audit ", why),
    make("p", { className: "buttons" }, go, make("button", { type: "button", id: "confirm-no", onclick: () => dialog.close() }, "Leave it"))));
  dialog.setAttribute("aria-labelledby", "confirm-title");
  document.body.append(dialog);
  dialog.addEventListener("keydown", (e) => e.stopPropagation()); // the page has keys of its own
  dialog.addEventListener("close", () => byId("act-show").focus());

  function byId(id) { return document.getElementById(id); }
  function tell(text) { said.textContent = text; }

  function action() { return state && state.actions.find((a) => a.name === what.value); }

  // The key that the page shows, as commands take it, or "". What the page shows of a name may be the name of another key.
  function here() {
    const h1 = document.querySelector("h1.key");
    return h1 && h1.dataset.key || "";
  }

  function offers(name) {
    const key = byId("act-key"), group = byId("act-group"), box = byId("act-mailbox");
    const k = key && state.keys.find((o) => o.key === key.value), g = group && state.groups.find((o) => o.group === group.value);
    const m = box && state.mailboxes.find((o) => o.mailbox === box.value);
    switch (name) {
      case "key": return state.keys.filter((o) => what.value !== "resign" || o.kind === "election").map((o) => [o.key, o.kind]);
      case "session": return state.keys.flatMap((o) => o.sessions.map((s) => [String(s.session), s.who + ", " + o.key]));
      case "to": return k ? (k.candidates || []).map((c) => [c, ""]) : [];
      case "group": return state.groups.map((o) => [o.group, ""]);
      case "node": return g ? g.nodes.map((n) => [n, ""]) : [];
      case "shard": return g ? (g.shards || []).map((n) => [n, ""]) : [];
      case "lease": return state.leases.map((n) => [n, ""]);
      case "mailbox": return state.mailboxes.map((o) => [o.mailbox, ""]);
      case "entity": return m ? m.entities.map((n) => [n, ""]) : [];
    }
    return [];
  }

  // refill renews what a field offers, and keeps what was typed.
  function refill() {
    for (const input of fields.querySelectorAll("input, select")) {
      const all = offers(input.name), options = all.map(([value, label]) => make("option", { value, label: label ? value + " (" + label + ")" : value }));
      if (input.tagName === "SELECT") {
        const old = input.value;
        input.replaceChildren(make("option", { value: "", label: "anyone" }), ...options);
        input.value = all.some(([value]) => value === old) ? old : "";
      } else byId(input.id + "-list").replaceChildren(...options);
    }
  }

  function choose() {
    const a = action();
    fields.replaceChildren();
    if (!a) return;
    for (const f of a.fields) {
      const name = f.replace("?", ""), id = "act-" + name;
      const input = name === "to" ? make("select", { id, name }) : make("input", { id, name, required: !f.endsWith("?"), autocomplete: "off", spellcheck: false });
      if (input.tagName === "INPUT") input.setAttribute("list", id + "-list");
      fields.append(make("label", {}, labels[name] + " ", input, ...(name === "to" ? [] : [make("datalist", { id: id + "-list" })])));
    }
    if (byId("act-key") && here()) byId("act-key").value = here();
    refill();
  }

  // The time of today, or a day with its time.
  function when(time) {
    const day = time.slice(0, 10), hour = time.slice(11, 19);
    return day === new Date().toISOString().slice(0, 10) ? hour : day + " " + hour;
  }

  function show() {
    who.replaceChildren("Signed in as ", make("strong", {}, state.person.name), ", with the role ", make("strong", {}, state.person.role));
    out.hidden = Boolean(state.person.certified);
    const old = what.value;
    what.replaceChildren(...state.actions.map((a) => make("option", { value: a.name, disabled: !a.allowed, label: a.text + (a.allowed ? "" : " (needs the role " + a.role + ")") })));
    const allowed = state.actions.filter((a) => a.allowed);
    form.hidden = allowed.length === 0;
    what.value = allowed.some((a) => a.name === old) ? old : allowed.length ? allowed[0].name : "";
    if (what.value !== old || !fields.children.length) choose();
    else refill();
    rows.replaceChildren(...state.audit.map((e) => make("tr", {}, make("td", {}, when(e.time)), make("td", {}, e.who || "nobody known"),
      make("td", {}, e.action + (e.target ? ": " + e.target : "")), make("td", {}, e.why || ""), make("td", {}, e.outcome + (e.detail ? ": " + e.detail : "")))));
    if (state.problem) tell(state.problem);
  }

  async function load() {
    try {
      state = await call("state");
      show();
    } catch (e) { tell(e.message); }
  }

  function ask(preview) {
    confirm = preview.confirm;
    title.textContent = preview.title;
    changed.textContent = preview.changed ? "It changed meanwhile: this is what it would do now." : "";
    effect.replaceChildren(...preview.effect.map((line) => make("li", {}, line)));
    if (!dialog.open) {
      why.value = "";
      dialog.showModal();
    }
    why.focus();
  }

  what.addEventListener("change", choose);
  fields.addEventListener("input", refill);
  what.addEventListener("focus", load, { once: true });
  form.addEventListener("submit", async (e) => {
    e.preventDefault();
    const request = { action: what.value };
    for (const input of fields.querySelectorAll("input, select")) {
      const value = input.value.trim();
      if (value) request[input.name] = input.name === "session" || input.name === "number" ? Number(value) : value;
    }
    tell("");
    try { ask(await call("prepare", request)); } catch (err) { tell(err.message); load(); }
  });
  dialog.querySelector("form").addEventListener("submit", async (e) => {
    e.preventDefault();
    go.disabled = true;
    try {
      const answer = await call("do", { confirm, why: why.value.trim() });
      if (answer.changed) { ask(answer); return; }
      tell(answer.outcome + ": " + answer.text);
      dialog.close();
    } catch (err) {
      tell(err.message);
      dialog.close();
    } finally {
      go.disabled = false;
      load();
    }
  });
  out.addEventListener("click", async () => {
    try {
      await call("sign-out", {});
      location.assign("./");
    } catch (e) { tell(e.message); }
  });
  document.addEventListener("keydown", (e) => {
    if (e.key !== "a" || e.ctrlKey || e.metaKey || e.altKey || e.target.matches("input, textarea, select") || dialog.open || form.hidden) return;
    e.preventDefault();
    what.focus();
  });
  load();
})();
