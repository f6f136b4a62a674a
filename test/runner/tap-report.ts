/**
 * Counts tests in a TAP stream.
 *
 * A test is a named block without blocks inside it, whatever its number of assertions; a property
 * test is one test. Loose assertions beside blocks count as one test together, and every skipped
 * block or assertion as one skipped test. A file that breaks outside its blocks (does not load,
 * runs out of time) is one failed test more.
 */
import type { Readable } from 'node:stream';
import { Parser, type Result } from 'tap-parser';

/** Numbers of tests. */
export interface Tally {
  passed: number;
  failed: number;
  skipped: number;
}

export interface FailedTest {
  /** Block names joined by ` > `. */
  readonly name: string;
  /** What TAP says about it: difference, place, stack. */
  readonly diagnostics: unknown;
}

export interface SkippedTest {
  readonly name: string;
  readonly reason: string;
}

/** What came of one test file. */
export interface FileReport extends Tally {
  readonly file: string;
  /** Milliseconds, when TAP told. */
  readonly timeMs: number | undefined;
  readonly failures: readonly FailedTest[];
  readonly skips: readonly SkippedTest[];
  /** Lines of the file's standard output that are not TAP, at most 200. */
  readonly output: readonly string[];
}

const MAX_OUTPUT_LINES = 200;

/** Collects one file. Blocks add to it as they end. */
interface Collector extends Tally {
  failures: FailedTest[];
  skips: SkippedTest[];
  output: string[];
}

function newCollector(): Collector {
  return { passed: 0, failed: 0, skipped: 0, failures: [], skips: [], output: [] };
}

/** Whether TAP marks the point as not run. A TODO is not run either. */
function skipReason(point: Result): string | undefined {
  if (point.skip !== false) {
    return typeof point.skip === 'string' && point.skip !== '' ? point.skip : point.name;
  }
  if (point.todo !== false) return `todo: ${String(point.todo)}`;
  return undefined;
}

/**
 * Counts one block by its own points, those that do not close a block inside it: one skipped test
 * for each skipped point, and one test for all the others.
 */
function countBlock(into: Collector, path: string, points: readonly Result[]): void {
  let ran = false;
  let failed = false;
  for (const point of points) {
    const name = join(path, point.name);
    const reason = skipReason(point);
    if (reason !== undefined) {
      into.skipped += 1;
      into.skips.push({ name, reason });
      continue;
    }
    ran = true;
    if (point.ok) continue;
    failed = true;
    into.failures.push({ name, diagnostics: diagnostics(point) });
  }
  if (ran) into[failed ? 'failed' : 'passed'] += 1;
}

/** What TAP says about a failed point, without what tells only how tap started the file. */
function diagnostics(point: Result): unknown {
  const all: unknown = point.diag;
  if (typeof all !== 'object' || all === null) return undefined;
  const dull = new Set(['stdio', 'cwd', 'externalID', 'command', 'args', 'jobId']);
  return Object.fromEntries(Object.entries(all).filter(([key]) => !dull.has(key)));
}

function join(path: string, name: string): string {
  return path === '' ? name : `${path} > ${name}`;
}

/** How many tests have been counted. */
function counted(tally: Tally): number {
  return tally.passed + tally.failed + tally.skipped;
}

/** Follows one block: its own points and the blocks in it. */
function followBlock(parser: Parser, path: string, into: Collector): void {
  const own: Result[] = [];
  let before = { counted: 0, failed: 0 };
  parser.on('child', (child: Parser) => {
    before = { counted: counted(into), failed: into.failed };
    followBlock(child, join(path, child.name), into);
  });
  parser.on('assert', (point: Result) => {
    if (!point.closingTestPoint) {
      own.push(point);
    } else if (counted(into) === before.counted) {
      // Nothing in the block told anything: it has no assertions, or was skipped as a whole.
      countBlock(into, path, [point]);
    } else if (!point.ok && into.failed === before.failed && skipReason(point) === undefined) {
      // Failed as a whole though nothing in it did: a plan that was not kept, or an early end.
      into.failed += 1;
      into.failures.push({ name: join(path, point.name), diagnostics: diagnostics(point) });
    }
  });
  parser.on('extra', (text: string) => keepOutput(into, text));
  parser.on('complete', () => countBlock(into, path, own));
}

function keepOutput(into: Collector, text: string): void {
  for (const line of text.split('\n')) {
    if (line.trim() !== '' && into.output.length < MAX_OUTPUT_LINES) into.output.push(line.trim());
  }
}

/**
 * Reads TAP as `tap --reporter=tap` writes it, where every outermost block is a test file, and
 * calls `onFile` as each file ends. Resolves with the sum.
 */
export async function readTap(
  input: Readable,
  onFile: (report: FileReport) => void,
): Promise<Tally> {
  const total: Tally = { passed: 0, failed: 0, skipped: 0 };
  const parser = new Parser();
  let current = newCollector();
  parser.on('child', (child: Parser) => followBlock(child, '', current));
  // What a file prints before its first assertion comes before the parser knows the block.
  parser.on('extra', (text: string) => keepOutput(current, text));
  parser.on('assert', (point: Result) => {
    finishFile(current, point);
    total.passed += current.passed;
    total.failed += current.failed;
    total.skipped += current.skipped;
    onFile({ file: point.name, timeMs: point.time ?? undefined, ...current });
    current = newCollector();
  });
  for await (const chunk of input) parser.write(chunk as Buffer);
  parser.end();
  return total;
}

/** Adds what only the point that closes the file tells. */
function finishFile(into: Collector, point: Result): void {
  if (skipReason(point) !== undefined) {
    countBlock(into, '', [point]);
  } else if (!point.ok && into.failed === 0) {
    into.failed += 1;
    into.failures.push({ name: point.name, diagnostics: diagnostics(point) });
  }
}
