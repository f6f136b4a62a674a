/** A page with its parts written again. Throws where a part has no place in it. */
export function fillPage(page: string, parts: Readonly<Record<string, string>>): string {
  return Object.entries(parts).reduce((text, [name, part]) => {
    const [begin, end] = [`<!-- begin ${name} -->\n`, `\n<!-- end ${name} -->`];
    const [from, to] = [text.indexOf(begin), text.indexOf(end)];
    if (from === -1 || to < from) throw new Error(`no place for ${name}`);
    return text.slice(0, from) + begin + part + text.slice(to);
  }, page);
}
