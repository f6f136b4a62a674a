/** Words and columns of `npm test`. */
import { stringify } from 'yaml';
import type { CheckResult } from './check.ts';
import type { FileReport, SkippedTest, Tally } from './tap-report.ts';

/** The closing line: any CI can read it. */
export function tallyLine(tally: Tally): string {
  return `${tally.passed} passed, ${tally.failed} failed, ${tally.skipped} skipped`;
}

/** One check: verdict, name, time; a single line of output is shown beside it. */
export function checkLine(result: CheckResult): string {
  const note = result.output.trim();
  const shown = result.ok && note !== '' && !note.includes('\n') ? `   ${note}` : '';
  return `${verdict(result.ok)}  ${result.name.padEnd(44)} ${seconds(result.ms)}${shown}`;
}

/** One test file: verdict, name, time, numbers. */
export function fileLine(report: FileReport): string {
  const parts = [
    `${report.passed} passed`,
    report.failed > 0 ? `${report.failed} failed` : '',
    report.skipped > 0 ? `${report.skipped} skipped` : '',
  ].filter((part) => part !== '');
  const name = report.file.padEnd(44);
  return `${verdict(report.failed === 0)}  ${name} ${seconds(report.timeMs)}   ${parts.join(', ')}`;
}

/** What failed in a file and why, and what was skipped and why. */
export function problemLines(report: FileReport, refused: readonly SkippedTest[]): string[] {
  const lines: string[] = [];
  for (const failure of report.failures) {
    lines.push(`        failed: ${failure.name}`);
    if (failure.diagnostics !== undefined) lines.push(indent(stringify(failure.diagnostics), 10));
  }
  for (const skip of report.skips) {
    const word = refused.includes(skip) ? 'failed: skipped, but it has to run here' : 'skipped';
    lines.push(`        ${word}: ${skip.name} (${skip.reason})`);
  }
  if (report.failed > 0 && report.output.length > 0) {
    lines.push('        output:', indent(report.output.join('\n'), 10));
  }
  return lines;
}

/** Puts `width` spaces before every line that has text. */
export function indent(text: string, width: number): string {
  return text
    .trimEnd()
    .split('\n')
    .map((line) => (line === '' ? '' : ' '.repeat(width) + line))
    .join('\n');
}

function verdict(ok: boolean): string {
  return ok ? '  ok  ' : '  FAIL';
}

function seconds(ms: number | undefined): string {
  return ms === undefined ? '      -' : `${(ms / 1000).toFixed(1)} s`.padStart(7);
}
