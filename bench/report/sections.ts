/**
 * Parts of docs/benchmarks.md that are measured by themselves: each run writes its own and leaves the
 * others as they are.
 */

/** Before what a section is put that the page does not have yet. */
const NEXT_HEADING = '## How to read it';

/** The page with the section instead of the one of that name, or as a further one. */
export function putSection(page: string, name: string, text: string): string {
  const section = `${begin(name)}\n\n${text.trim()}\n\n${end(name)}\n\n`;
  const former = find(page, name);
  if (former !== undefined) return page.replace(former, () => section);
  const at = page.indexOf(NEXT_HEADING);
  return at === -1
    ? `${page.trimEnd()}\n\n${section}`
    : `${page.slice(0, at)}${section}${page.slice(at)}`;
}

/** A new page with the sections of the former one. */
export function keepSections(page: string, former: string): string {
  const names = [...former.matchAll(/^<!-- begin (\w+) -->$/gm)].map(([, name = '']) => name);
  return names.reduce((text, name) => {
    const section = find(former, name);
    return section === undefined || find(text, name) !== undefined
      ? text
      : putSection(text, name, inner(section, name));
  }, page);
}

function begin(name: string): string {
  return `<!-- begin ${name} -->`;
}

function end(name: string): string {
  return `<!-- end ${name} -->`;
}

/** With its markers and the empty line after it. */
function find(page: string, name: string): string | undefined {
  return new RegExp(`^${begin(name)}$[^]*?^${end(name)}\\n*`, 'm').exec(page)?.[0];
}

function inner(section: string, name: string): string {
  return section.replace(begin(name), '').replace(end(name), '');
}
