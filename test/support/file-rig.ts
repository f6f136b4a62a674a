/** State files in tests: short texts, and what becomes of them. */
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Test } from 'tap';
import { loadHasher } from '../../src/api/hash.ts';
import { fileInvalid, fileLoaded, fileReadFailed } from '../../src/file/events.ts';
import { type FileLimits, DEFAULT_FILE_LIMITS } from '../../src/file/limits.ts';
import { servicePath } from '../../src/api/paths.ts';
import { buildNode, buildService } from '../../src/file/build.ts';
import { StateParser } from '../../src/file/parse.ts';
import { formatProblem } from '../../src/file/problem.ts';
import { FileSource, type FileSourceOptions } from '../../src/file/source.ts';
import type { RawServiceItem } from '../../src/file/raw.ts';
import type { GlobalState } from './cluster.ts';
import { feedLocalSink } from '../../src/store/local-feed.ts';
import type { LocalSink } from '../../src/store/local-view.ts';
import { renameOver } from '../../src/util/atomic-file.ts';
import type { TypedChannel } from '../../src/util/channel.ts';
import { listening } from './mailbox.ts';
import { RecordingSink } from './recording-sink.ts';

/** The state of a valid text; throws with the problems of any other. */
export function stateOf(text: string): GlobalState {
  const changed = new Set<string>();
  const result = new StateParser().parse(text, changed);
  if (!result.ok) throw new Error(problemsOf(text).join('\n'));
  return {
    services: servicesFrom(changed),
    nodes: new Map(result.nodes.map((node) => [node.name, buildNode(node)])),
  };
}

/** The services of valid items. */
export function servicesFrom(items: Iterable<string>): GlobalState['services'] {
  const services = Array.from(items, (text) => buildService(JSON.parse(text) as RawServiceItem));
  return new Map(
    services.map((each) => [servicePath(each.service.namespace, each.service.name), each]),
  );
}

/** The errors of a text, as `line:column: path: message`. */
export function problemsOf(text: string): string[] {
  const result = new StateParser().parse(text);
  return result.ok ? [] : result.errors.first.map((problem) => formatProblem('', problem).slice(1));
}

/** The warnings of a text. */
export function warningsOf(text: string): string[] {
  const result = new StateParser().parse(text);
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

/** A state file that is followed by the real source, until the test ends. */

const hasher = await loadHasher();

/** Renames a new file over the state file. */
export async function put(path: string, content: string | Uint8Array): Promise<void> {
  await writeFile(`${path}.new`, content);
  await renameOver(`${path}.new`, path);
}

/** A file with services of these names. */
export function servicesText(...names: string[]): string {
  return `services:\n${names.map((name) => `- service: {name: ${name}}\n`).join('')}`;
}

/** Feeds a sink from a source until the signal is aborted. */
export function feedSink(
  source: FileSource,
  nodeName: string,
  sink: LocalSink,
  signal: AbortSignal,
): Promise<void> {
  return feedLocalSink({ source, nodeName, hasher }, sink, signal);
}

interface RigOptions extends Omit<Partial<FileSourceOptions>, 'limits'> {
  readonly limits?: Partial<FileLimits>;
  readonly nodeName?: string;
  readonly sink?: RecordingSink;
}

export function followFile(
  t: Test,
  text: string | undefined,
  { nodeName = 'n1', sink = new RecordingSink(), limits, ...options }: RigOptions = {},
) {
  const path = join(t.testdir(text === undefined ? {} : { 'state.yaml': text }), 'state.yaml');
  const source = new FileSource({
    path,
    limits: { ...DEFAULT_FILE_LIMITS, settleMs: 10, ...limits },
    ...options,
  });
  const loads = heard(t, fileLoaded, path);
  const invalid = heard(t, fileInvalid, path);
  const failures = heard(t, fileReadFailed, path);
  const abort = new AbortController();
  const done = feedSink(source, nodeName, sink, abort.signal);
  t.teardown(async () => {
    abort.abort();
    await done;
  });
  return { path, sink, loads, invalid, failures, abort, done };
}

/** The events about one file, as they come. */
export function heard<Event extends { path: string }>(
  t: Test,
  channel: TypedChannel<Event>,
  path: string,
): Event[] {
  const events: Event[] = [];
  listening(t, channel, (event) => event.path === path && events.push(event));
  return events;
}
