/**
 * The rows of the tables in a page, cell by cell, without their heads. With `section`, only those
 * under the heading of that name.
 */
export function tableRows(page: string, section?: string): string[][] {
  const rows: string[][] = [];
  let inSection = section === undefined;
  let inTable = false;
  for (const line of page.split('\n')) {
    if (line.startsWith('#')) {
      inSection = section === undefined || line.replace(/^#+ /, '') === section;
    }
    if (!line.startsWith('|')) inTable = false;
    else if (/^\|( --- \|)+$/.test(line)) inTable = true;
    else if (inTable && inSection) rows.push(cells(line));
  }
  return rows;
}

function cells(line: string): string[] {
  return line
    .slice(1, -1)
    .split(/(?<!\\)\|/)
    .map((cell) => cell.trim().replaceAll('\\|', '|'));
}
