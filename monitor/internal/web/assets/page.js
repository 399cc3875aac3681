// Keeps the page up to date from server-sent events. The page is whole without it.
"use strict";
(() => {
  const body = document.body, byId = (id) => document.getElementById(id);
  const live = byId("live"), text = byId("live-text"), banner = byId("banner"), pause = byId("pause"), announce = byId("announce");
  let ahead = Number(body.dataset.now) - Date.now(); // of the server's clock
  let aimed = false; // at the deadlock that is drawn
  let source = null, paused = false, heard = Date.now(), shown = Number(body.dataset.now), verdicts = count();

  // The same words as on the server: incident.Age.
  function age(ms) {
    const s = Math.max(0, ms) / 1000;
    if (s < 10) return s.toFixed(1) + " s";
    if (s < 60) return Math.floor(s) + " s";
    if (s < 3600) return Math.floor(s / 60) + " min " + (Math.floor(s) % 60) + " s";
    if (s < 86400) return Math.floor(s / 3600) + " h " + (Math.floor(s / 60) % 60) + " min";
    return Math.floor(s / 86400) + " d " + (Math.floor(s / 3600) % 24) + " h";
  }

  // What is shown stands still when nothing is heard: an age that goes on would say that it is known.
  function ages(within) {
    const now = live.classList.contains("off") || paused ? shown : Date.now() + ahead;
    for (const e of within.querySelectorAll("[data-since]")) {
      const said = age(now - Number(e.dataset.since));
      if (e.lastChild.textContent !== said) e.lastChild.textContent = said;
    }
  }

  function clock(ms) { return new Date(ms).toISOString().slice(11, 19); }
  function stale() { return source !== null && Date.now() - heard > 5000; }

  function count() { return new Set([...document.querySelectorAll(".verdicts .card")].map((e) => e.id)); }

  function make(html) {
    const t = document.createElement("template");
    t.innerHTML = html;
    return t.content;
  }

  // morph makes an element what it is to be, and keeps what is the same: its focus, its scrolling, and
  // a click that has begun.
  function morph(old, made) {
    if (old.isEqualNode(made)) return;
    if (old.nodeName !== made.nodeName || old.id !== made.id) { old.replaceWith(made); return; }
    if (old.nodeType !== Node.ELEMENT_NODE) { old.nodeValue = made.nodeValue; return; }
    for (const { name } of [...old.attributes]) if (!made.hasAttribute(name) && name !== "open") old.removeAttribute(name);
    for (const { name, value } of made.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
    children(old, made);
  }
  function children(old, made) {
    const to = [...made.childNodes];
    to.forEach((node, i) => { if (old.childNodes[i]) morph(old.childNodes[i], node); else old.append(node); });
    while (old.childNodes.length > to.length) old.lastChild.remove();
  }

  function rows(update) {
    const table = byId("rows");
    if (!table) return;
    const focus = document.activeElement, row = focus && focus.closest && focus.closest("tr"), first = table.dataset.known !== "yes";
    for (const [id, html] of Object.entries(update.rows || {})) {
      const made = make(html).firstElementChild, old = byId(id);
      if (!old && !first) made.classList.add("new");
      if (old && old.classList.contains("at")) made.classList.add("at");
      ages(made);
      if (old) morph(old, made); else table.append(made);
    }
    if (update.order || update.empty) {
      const order = update.order || [];
      const keep = new Set(order);
      for (const tr of [...table.children]) if (!keep.has(tr.id)) tr.remove();
      let next = table.firstElementChild;
      for (const id of order) {
        const tr = byId(id);
        if (!tr) continue;
        if (tr === next) next = next.nextElementSibling; else table.insertBefore(tr, next);
      }
    }
    table.dataset.known = "yes";
    if (row && document.activeElement === body && byId(row.id)) byId(row.id).querySelector("a").focus({ preventScroll: true });
  }

  function show(update) {
    const began = performance.now();
    heard = Date.now();
    ahead = update.now - heard;
    shown = update.now;
    for (const [name, html] of Object.entries(update.parts || {})) {
      const part = document.querySelector(`[data-part="${name}"]`);
      if (part) {
        const made = make(html);
        ages(made);
        children(part, made);
      }
    }
    rows(update);
    ages(document);
    aim();
    const now = count(), fresh = [...now].filter((id) => !verdicts.has(id));
    if (fresh.length) announce.textContent = "New: " + fresh.map((id) => byId(id).querySelector("strong").textContent).join(" ");
    else if (verdicts.size && !now.size) announce.textContent = "Nothing is wrong any more.";
    verdicts = now;
    state("on", "live, " + clock(update.now) + " UTC");
    tell("");
    performance.clearMeasures("pglatch update");
    performance.measure("pglatch update", { start: began });
  }

  // A drawing that is larger than its frame opens on the deadlock, and comes back to it only when there is a new one.
  function aim() {
    const drawing = document.querySelector(".drawing"), cycle = drawing && drawing.querySelector("line.cycle");
    if (cycle && !aimed) {
      const box = drawing.getBoundingClientRect(), line = cycle.getBoundingClientRect();
      drawing.scrollLeft += line.left + line.width / 2 - box.left - box.width / 2;
      drawing.scrollTop += line.top + line.height / 2 - box.top - box.height / 2;
    }
    aimed = Boolean(cycle);
  }

  function state(name, words) {
    live.classList.remove("on", "off");
    if (name) live.classList.add(name);
    if (text.textContent !== words) text.textContent = words;
    body.classList.toggle("stale", name === "off");
  }
  function tell(words) {
    if (banner.textContent !== words) banner.textContent = words;
    banner.hidden = words === "";
  }

  function connect() {
    if (source) source.close();
    if (!body.dataset.live || paused) return;
    heard = Date.now();
    source = new EventSource(body.dataset.live);
    source.addEventListener("view", (e) => show(JSON.parse(e.data)));
    source.addEventListener("down", (e) => {
      heard = Date.now();
      broken("The database does not answer.");
    });
    source.onerror = () => {
      broken("The connection to this page's server is lost.");
      if (source.readyState === EventSource.CLOSED) setTimeout(connect, 2000); // refused: the browser does not try again
    };
  }
  function broken(why) {
    state("off", "not live");
    tell(why + " Shown is what was so at " + clock(shown) + " UTC. Trying again.");
  }

  setInterval(() => {
    if (stale()) broken("Nothing has come for " + Math.round((Date.now() - heard) / 1000) + " seconds.");
    ages(document);
  }, 1000);

  function toggle() {
    paused = !paused;
    pause.setAttribute("aria-pressed", String(paused));
    pause.textContent = paused ? "Go on" : "Pause";
    if (paused) {
      if (source) source.close();
      source = null;
      tell("");
      state("", "paused at " + clock(shown) + " UTC");
    } else connect();
  }

  // Filters act while one types.
  const find = byId("find"), older = byId("older"), form = find && find.form;
  let typing = 0;
  function filter() {
    const values = new URLSearchParams();
    for (const input of form.querySelectorAll("input")) if (input.value.trim()) values.set(input.name, input.value.trim());
    history.replaceState(null, "", "?" + values);
    values.set("view", body.dataset.view);
    body.dataset.live = "live?" + values;
    connect();
  }
  if (form && body.dataset.live) {
    form.addEventListener("input", () => {
      clearTimeout(typing);
      typing = setTimeout(() => { if (!older || /^([\d.]+\s*(ms|s|m|h)?\s*)*$/.test(older.value)) filter(); }, 250);
    });
    form.addEventListener("submit", (e) => { e.preventDefault(); filter(); });
  }

  // Commands can be copied.
  body.classList.add("scripted");
  document.addEventListener("click", async (e) => {
    const button = e.target.closest && e.target.closest(".copier");
    if (!button) return;
    const code = button.parentElement.querySelector("code");
    try {
      await navigator.clipboard.writeText(code.textContent);
      announce.textContent = "Copied.";
      button.textContent = "Copied";
    } catch { // no right to: it is selected, to copy by hand
      getSelection().selectAllChildren(code);
      announce.textContent = "Selected: copy it with the keyboard.";
    }
  });

  aim();

  let at = null;
  function move(by) {
    const all = [...document.querySelectorAll("#rows tr")];
    if (!all.length) return;
    const here = all.findIndex((tr) => tr.id === at);
    const next = all[Math.min(all.length - 1, Math.max(0, here + by))];
    for (const tr of all) tr.classList.toggle("at", tr === next);
    at = next.id;
    next.querySelector("a").focus();
  }
  document.addEventListener("keydown", (e) => {
    if (e.ctrlKey || e.metaKey || e.altKey) return;
    const typingIn = e.target.matches("input, textarea, select");
    if (e.key === "Escape" && typingIn) { e.target.blur(); return; }
    if (typingIn) return;
    const view = document.querySelector(`nav a[data-key="${CSS.escape(e.key)}"]`);
    if (view) view.click();
    else if (e.key === "/" && find) { e.preventDefault(); find.focus(); find.select(); }
    else if (e.key === "j") move(1);
    else if (e.key === "k") move(-1);
    else if (e.key === "p" && !pause.hidden) toggle();
  });

  if (body.dataset.live) {
    pause.hidden = false;
    pause.addEventListener("click", toggle);
    connect();
    addEventListener("pagehide", () => { if (source) source.close(); });
    addEventListener("pageshow", (e) => { if (e.persisted) connect(); });
  }
  ages(document);
})();
