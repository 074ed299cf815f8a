"""What a page must have so that everybody can use it, looked up in a real browser.

names       every field, button, link and picture has one that can be read out
contrast    text stands out from what is behind it: 4.5 to 1, 3 to 1 when it is large (WCAG AA)
structure   a language, a title, one first heading, no id twice, headings without gaps
"""

FAULTS = r"""
() => {
  const faults = [];
  const seen = (element) => {
    const box = element.getBoundingClientRect();
    const style = getComputedStyle(element);
    return box.width > 1 && box.height > 1 && style.visibility === "visible" && style.display !== "none";
  };
  const what = (element) => `<${element.tagName.toLowerCase()} ${element.name || element.className || ""}> ` +
    (element.textContent || "").trim().slice(0, 40);
  const name = (element) =>
    element.getAttribute("aria-label") ||
    (element.labels && [...element.labels].map((label) => label.textContent).join(" ").trim()) ||
    (element.matches("a, button, summary") ? element.textContent.trim() : "") ||
    element.getAttribute("title");
  const used = "input:not([type=hidden]), select, textarea, button, a[href], summary";
  for (const element of document.querySelectorAll(used))
    if (seen(element) && !name(element)) faults.push("no name: " + what(element));
  for (const image of document.querySelectorAll("img:not([alt])")) faults.push("no alt: " + image.src);
  const unnamed = document.querySelectorAll("svg:not([aria-label]):not([aria-hidden=true])");
  if (unnamed.length) faults.push("no name: svg");
  if (!document.documentElement.lang) faults.push("no language");
  if (!document.title.trim()) faults.push("no title");
  if (document.querySelectorAll("h1").length !== 1) faults.push("not one h1");
  const ids = [...document.querySelectorAll("[id]")].map((element) => element.id);
  for (const id of new Set(ids))
    if (ids.filter((each) => each === id).length > 1) faults.push("id twice: " + id);

  const parts = (colour) => {
    parts.canvas ||= document.createElement("canvas").getContext("2d", { willReadFrequently: true });
    const canvas = parts.canvas;
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    return canvas.getImageData(0, 0, 1, 1).data;
  };
  const over = (top, under) => {
    const alpha = top[3] / 255;
    return [0, 1, 2].map((n) => top[n] * alpha + under[n] * (1 - alpha));
  };
  const behind = (element) => {
    const layers = [];
    for (let at = element; at; at = at.parentElement) {
      const colour = parts(getComputedStyle(at).backgroundColor);
      if (colour[3]) layers.push(colour);
      if (colour[3] === 255) break;
    }
    return layers.reverse().reduce((under, top) => over(top, under), [255, 255, 255]);
  };
  const light = (colour) => {
    const linear = (c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    const [r, g, b] = [0, 1, 2].map((n) => linear(colour[n] / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const told = new Set();
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.textContent.trim() || !seen(element)) continue;
    if (element.closest("svg, script, option")) continue;
    const style = getComputedStyle(element);
    const ground = behind(element);
    const text = over(parts(style.color), ground);
    const [a, b] = [light(text), light(ground)].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    const size = parseFloat(style.fontSize);
    const least = size >= 24 || (size >= 18.6 && Number(style.fontWeight) >= 700) ? 3 : 4.5;
    const key = style.color + ground;
    if (ratio < least && !told.has(key)) faults.push(`contrast ${ratio.toFixed(2)}: ` + what(element));
    told.add(key);
  }
  return faults;
}
"""

VIOLATIONS = """
window.violations = [];
document.addEventListener("securitypolicyviolation", (event) =>
  window.violations.push(event.violatedDirective + " " + event.blockedURI));
"""
