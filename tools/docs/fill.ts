/** Replaces the parts of a page between their begin and end comments. Throws for a part without them. */
export function fillPage(page: string, parts: Readonly<Record<string, string>>): string {
  return Object.entries(parts).reduce((text, [name, part]) => {
    const [begin, end] = [`<!-- begin ${name} -->\n`, `\n<!-- end ${name} -->`];
    const [from, to] = [text.indexOf(begin), text.indexOf(end)];
    if (from === -1 || to < from) throw new Error(`the page has no comments for the part ${name}`);
    return text.slice(0, from) + begin + part + text.slice(to);
  }, page);
}
