/** State files in tests: short texts, and what becomes of them. */
import type { FileLimits } from '../../src/file/limits.ts';
import { parseStateFile } from '../../src/file/parse.ts';
import { formatProblem } from '../../src/file/problem.ts';
import type { GlobalState } from '../../src/store/global-state.ts';

/** The state of a valid text; throws with the problems of any other. */
export function stateOf(text: string, limits?: FileLimits): GlobalState {
  const result = parseStateFile(text, limits);
  if (!result.ok) throw new Error(problemsOf(text, limits).join('\n'));
  return result.state;
}

/** The errors of a text, as `line:column: path: message`. */
export function problemsOf(text: string, limits?: FileLimits): string[] {
  const result = parseStateFile(text, limits);
  return result.ok ? [] : result.errors.first.map((problem) => formatProblem('', problem).slice(1));
}

/** The warnings of a text. */
export function warningsOf(text: string): string[] {
  const result = parseStateFile(text);
  return result.ok ? result.newWarnings.first.map((each) => formatProblem('', each).slice(1)) : [];
}

/** Joins lines into a text that ends with a newline. */
export function lines(...texts: string[]): string {
  return `${texts.join('\n')}\n`;
}

/** The same text in a form that is parsed as one YAML document instead of service by service. */
export function inOnePiece(text: string): string {
  return text.replace(/^services:/m, '"services":');
}

/** A file with one service; the given lines are indented below `service:`. */
export function fileWith(...inService: string[]): string {
  return lines(
    'services:',
    '- service:',
    '    name: web',
    ...inService.map((line) => `    ${line}`),
  );
}
