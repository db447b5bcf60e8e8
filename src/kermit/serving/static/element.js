// Create elements.

/** A new element; use attributes or style for what is not a property (aria-label, data-tip, --doubt). */
export function element(name, { attributes = {}, style = {}, ...properties }, ...content) {
  const made = Object.assign(document.createElement(name), properties);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  for (const [key, value] of Object.entries(style)) made.style.setProperty(key, value);
  made.append(...content);
  return made;
}

/** A new button, which submits nothing. */
export function button(properties, ...content) {
  return element("button", { type: "button", ...properties }, ...content);
}
