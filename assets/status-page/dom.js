/** An element with properties and children. Texts are texts: nothing is ever read as HTML. */
export function el(tag, props = {}, ...children) {
  return fill(document.createElement(tag), props, children);
}

/** The same for SVG, whose properties are attributes. */
export function svg(tag, attributes = {}, ...children) {
  const node = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

function fill(node, props, children) {
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined) continue;
    if (name in node && !name.startsWith('aria-')) node[name] = value;
    else node.setAttribute(name, value);
  }
  node.append(...children.filter((child) => child !== undefined));
  return node;
}

export function byId(id) {
  return document.getElementById(id);
}

/** Changes a text only where it differs, so that what is selected stays selected. */
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}
