// What a page cannot do by itself: refresh its live parts, copy, show a body another way, follow a topic.
// Everything else is links and forms, and works without this file. Nothing here makes HTML out of text:
// new content is either a page of ours, parsed by the browser, or set as text.
"use strict";

const live = () => [...document.querySelectorAll("[data-live][id]")];

// --- live parts: the page is fetched again, and parts with the same id are exchanged -------------------
let due = 0;
const choice = document.querySelector("[data-refresh]");
// As often as was chosen, but no oftener than the page can bear: data-live says how many seconds that is.
const seconds = () => {
  const chosen = Number(choice ? choice.value : 0);
  return chosen && Math.max(chosen, ...live().map((part) => Number(part.dataset.live)));
};
if (choice) {
  const kept = localStorage.getItem("kourou-refresh");
  if (kept !== null && [...choice.options].some((option) => option.value === kept)) choice.value = kept;
  choice.addEventListener("change", () => {
    localStorage.setItem("kourou-refresh", choice.value);
    due = Date.now() + seconds() * 1000;
  });
}
const busy = (part) => part.contains(document.activeElement) && document.activeElement.matches("input, select, textarea, [data-keep]");
async function refresh() {
  const response = await fetch(location.href, { headers: { accept: "text/html" }, redirect: "error" });
  if (!response.ok) return;
  const fresh = new DOMParser().parseFromString(await response.text(), "text/html");
  for (const part of live()) {
    const found = fresh.getElementById(part.id);
    if (found && !busy(part)) {
      const held = part.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
      part.replaceChildren(...found.childNodes);
      if (held) part.querySelector(`[href="${CSS.escape(held)}"]`)?.focus({ preventScroll: true });
    }
  }
}
setInterval(async () => {
  if (!seconds() || document.hidden || !live().length || Date.now() < due) return;
  due = Infinity; // not again before this one is done
  try { await refresh(); } catch { /* the server is away: the next try will tell */ }
  due = Date.now() + seconds() * 1000;
}, 500);
due = Date.now() + seconds() * 1000;

// --- small things ---------------------------------------------------------------------------------------
document.addEventListener("click", async (event) => {
  const button = event.target.closest("button");
  if (!button) return;
  if ("copy" in button.dataset) {
    const text = button.parentElement.querySelector("code").textContent;
    try { await navigator.clipboard.writeText(text); } catch { return; }
    const said = button.textContent;
    button.textContent = "✓";
    setTimeout(() => { button.textContent = said; }, 1200);
  } else if ("menu" in button.dataset) {
    const open = document.getElementById("sections").classList.toggle("open");
    button.setAttribute("aria-expanded", String(open));
  } else if ("form" in button.dataset) {
    const body = button.closest("[data-body]");
    for (const other of body.querySelectorAll("button[data-form]")) {
      const mine = other === button;
      other.setAttribute("aria-pressed", String(mine));
      body.querySelector(`.form-${other.dataset.form}`).hidden = !mine;
    }
  }
});
document.addEventListener("change", (event) => {
  if ("all" in event.target.dataset) {
    for (const box of event.target.form.querySelectorAll("input[type=checkbox][name=ids]")) box.checked = event.target.checked;
  }
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") document.querySelectorAll("details.mine[open]").forEach((each) => { each.open = false; });
  if (event.key !== "/" || event.ctrlKey || event.metaKey || event.target.matches("input, textarea, select")) return;
  event.preventDefault();
  (document.querySelector("main [data-search]") || document.querySelector("[data-search]"))?.focus();
});

// --- a topic, as it comes ------------------------------------------------------------------------------
const tail = document.querySelector("[data-tail]");
if (tail) {
  const state = document.querySelector("[data-tail-state]");
  const pause = document.querySelector("[data-tail-pause]");
  let source = null;
  let count = 0;
  const begin = () => {
    source = new EventSource(tail.dataset.tail);
    source.onopen = () => { state.textContent = state.dataset.on; };
    source.onerror = () => { state.textContent = state.dataset.off; };
    source.onmessage = (event) => {
      const message = JSON.parse(event.data);
      const row = document.createElement("article");
      const head = document.createElement("div");
      const link = document.createElement("a");
      link.href = "/messages/" + encodeURIComponent(message.offset_id);
      link.textContent = `${message.broker}/${message.queue_id}@${message.queue_offset}`;
      head.append(link, ` ${message.stored_at.slice(11, 23)} ${message.tags || ""} ${message.keys || ""}`);
      const body = document.createElement("pre");
      body.textContent = (message.body ?? message.body_base64 ?? message.body_error ?? "").slice(0, 2000);
      row.append(head, body);
      tail.prepend(row);
      while (tail.children.length > 200) tail.lastElementChild.remove();
      count += 1;
      document.querySelector("[data-tail-count]").textContent = String(count);
    };
  };
  const end = () => { source?.close(); source = null; state.textContent = state.dataset.off; };
  pause.addEventListener("click", () => {
    const on = source !== null;
    if (on) end(); else begin();
    pause.textContent = on ? pause.dataset.go : pause.dataset.pause;
  });
  begin();
}
