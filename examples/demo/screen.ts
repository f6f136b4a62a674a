/** What the demo prints: columns, check marks, and colours on a terminal. */
import { styleText, type InspectColor } from 'node:util';

/** Follows NO_COLOR and FORCE_COLOR; plain when standard output is not a terminal. */
function style(format: InspectColor | InspectColor[], text: string): string {
  return styleText(format, text, { stream: process.stdout });
}

export function print(line = ''): void {
  process.stdout.write(`${line}\n`);
}

/** Rows of two columns with aligned labels; a row without label continues the one above. */
export function printFacts(facts: readonly (readonly [label: string, text: string])[]): void {
  const width = Math.max(...facts.map(([label]) => label.length)) + 3;
  for (const [label, text] of facts) print(`  ${style('dim', label.padEnd(width))}${text}`);
}

export function printHeading(text: string): void {
  print(style('bold', text));
}

/** Number and title of a step. */
export function printStep(number: number, title: string): void {
  print(`\n${style('cyan', String(number))}  ${style('bold', title)}`);
}

/** What a step saw. */
export function printLine(text: string): void {
  print(`   ${text}`);
}

/** Whether it was as it should be. */
export function printVerdict(ok: boolean, text: string): void {
  print(`   ${ok ? style('green', '✓') : style('red', '✗')} ${text}`);
}

/** `alder 10   birch 10   cedar 10`, in order of the names. */
export function counts(answers: readonly string[]): string {
  return [...tally(answers)]
    .sort(([a], [b]) => a.localeCompare(b))
    .map(([name, count]) => `${name} ${count}`)
    .join('   ');
}

/** How often each text occurs. */
export function tally(texts: readonly string[]): Map<string, number> {
  const result = new Map<string, number>();
  for (const text of texts) result.set(text, (result.get(text) ?? 0) + 1);
  return result;
}
