/** What is printed, and the table of docs/reference/robustness.md. */
import { asMarkdown } from '../report/table.ts';
import type { Abuse, Result } from './scenario.ts';

const mib = (bytes: number): string => (bytes / 1024 ** 2).toFixed(0);

/** One line for the terminal. */
export function resultLine(result: Result, reasons: readonly string[]): string {
  const { name, engine, seconds } = result;
  const verdict = reasons.length === 0 ? 'ok  ' : 'FAIL';
  const [, , , memory, control] = row(result, reasons);
  const figures = `${memory} MiB; ${control}`;
  const why = reasons.length === 0 ? '' : `\n      ${reasons.join('\n      ')}`;
  return `${verdict}  ${name} (${engine}, ${seconds.toFixed(1)} s): ${result.did}; ${figures}${why}`;
}

/** The section of the page: the machine, then a row for each scenario and engine. */
export function renderRobustness(
  results: readonly { abuse: Abuse; result: Result; reasons: readonly string[] }[],
  machine: string,
): string {
  const head = ['abuse', 'engine', 'what was done', 'memory MiB', 'control traffic', 'verdict'];
  const rows = results.map(({ result, reasons }) => row(result, reasons));
  const date = new Date().toISOString().slice(0, 10);
  return `${date}, ${machine}\n\n${asMarkdown([head, ...rows], head.length)}`;
}

/** The page with new rows in place of those of the same scenarios and engines. Throws if it lacks one. */
export function replaceRows(
  page: string,
  results: readonly { result: Result; reasons: readonly string[] }[],
): string {
  return results.reduce((text, { result, reasons }) => {
    const cells = row(result, reasons);
    const start = `| ${cells.slice(0, 2).join(' | ')} |`;
    const line = text.split('\n').find((each) => each.startsWith(start));
    if (line === undefined) throw new Error(`the page has no row ${start}`);
    return text.replace(line, () => `| ${cells.join(' | ')} |`);
  }, page);
}

function row(result: Result, reasons: readonly string[]): string[] {
  const { title, engine, did, memory, control } = result;
  return [
    title,
    engine,
    did,
    `${mib(memory.rest)} → ${mib(memory.peak)}`,
    control === undefined ? '-' : traffic(control),
    reasons.length === 0 ? 'withstood' : `**failed**: ${reasons.join('; ').replaceAll('|', '/')}`,
  ];
}

function traffic({ rest, during }: NonNullable<Result['control']>): string {
  const { exchanged, lost, refused, datagrams, datagramsLost } = during;
  return (
    `${exchanged} exchanges, ${lost + refused} lost; ${datagrams} datagrams, ${datagramsLost} lost; ` +
    `p99 ${rest.p99.toFixed(1)} → ${during.p99.toFixed(1)} ms`
  );
}
