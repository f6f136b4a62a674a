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

/** The items of a page's lists that begin with names in backquotes: the names, and what follows them. */
export function listItems(page: string, section?: string): { names: string[]; text: string }[] {
  const start = section === undefined ? page : (page.split(`\n## ${section}\n`)[1] ?? '');
  const part = section === undefined ? page : (start.split('\n## ')[0] ?? '');
  return [...part.matchAll(/^\* ((?:`[^`]+`(?:, )?)+)(.*(?:\n {2}.*)*)/gm)].map(
    ([, names = '', text = '']) => ({ names: codes(names), text: text.replace(/^: /, '') }),
  );
}

export interface DocumentedMetric {
  readonly name: string;
  readonly type: string;
  /** The labels that not all metrics of its section have. */
  readonly labels: readonly string[];
  /** What follows the labels. */
  readonly values: string | undefined;
}

/** The metrics of `docs/reference/metrics.md`, or of one section of it. */
export function documentedMetrics(page: string, section?: string): DocumentedMetric[] {
  return listItems(page, section).flatMap(({ names, text }) => {
    const [, mark] = /^(?:\\\*)? \((\w+)\): /.exec(text) ?? [];
    const [, labels = '', values] = /\bBy ((?:`\w+`(?:, )?)+)(?:: (.*))?\.$/.exec(text) ?? [];
    return names.map((name) => {
      const type = mark ?? (name.endsWith('_total') ? 'counter' : 'gauge');
      return { name, type, labels: codes(labels), values };
    });
  });
}

function codes(text: string): string[] {
  return [...text.matchAll(/`([^`]+)`/g)].map(([, code = '']) => code);
}
