/** State files in tests: short texts, and what becomes of them. */
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Test } from 'tap';
import { loadHasher } from '../../src/api/hash.ts';
import { fileInvalid, fileLoaded, fileReadFailed, fileRecovered } from '../../src/file/events.ts';
import { type FileLimits, DEFAULT_FILE_LIMITS } from '../../src/file/limits.ts';
import { servicePath } from '../../src/api/paths.ts';
import { buildEndpoint, buildNode, buildService, writeChanges } from '../../src/file/changes.ts';
import { StateParser } from '../../src/file/parse.ts';
import { formatProblem } from '../../src/file/problem.ts';
import { fileSource, type FileSourceOptions } from '../../src/file/source.ts';
import type { RawNode, RawServiceItem } from '../../src/file/raw.ts';
import { sourceSynced } from '../../src/store/events.ts';
import type { GlobalStore } from '../../src/store/global-store.ts';
import { feedLocalSink } from '../../src/store/local-feed.ts';
import { renameOver } from '../../src/util/atomic-file.ts';
import type { TypedChannel } from '../../src/util/channel.ts';
import { listening } from './sockets.ts';
import { RecordingSink } from './recording-sink.ts';

/** The state of a valid text; throws with the problems of any other. */
export function stateOf(text: string) {
  const items: string[] = [];
  const result = new StateParser().parse(text, (item) => items.push(item));
  if (!result.ok) throw new Error(problemsOf(text).join('\n'));
  const nodes = JSON.parse(result.nodesText ?? '[]') as RawNode[];
  return {
    services: servicesFrom(items),
    nodes: new Map(nodes.map((node) => [node.name, buildNode(node)])),
  };
}

/** The services of valid items, by `namespace/name`. */
export function servicesFrom(items: Iterable<string>) {
  const services = Array.from(items, (text) => {
    const item = JSON.parse(text) as RawServiceItem;
    const endpoints = (item.endpoints ?? []).map((each) => buildEndpoint(each, item.service));
    return { service: buildService(item.service), endpoints };
  });
  return new Map(
    services.map((each) => [servicePath(each.service.namespace, each.service.name), each]),
  );
}

/**
 * Loads texts into a store as the source does. Resolves with what the parser sends of the services; undefined: the text
 * is refused.
 */
export function loader(store: GlobalStore) {
  const parser = new StateParser();
  return async (text: string): Promise<string[] | undefined> => {
    const items: string[] = [];
    const result = parser.parse(text, (item) => items.push(item));
    if (!result.ok) return undefined;
    // As when a text is first read in pieces, and then as a whole.
    const parts = [items, items];
    await store.updateInParts((transaction) => writeChanges(store, transaction, parts, result));
    return items;
  };
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

interface RigOptions extends Omit<Partial<FileSourceOptions>, 'limits'> {
  readonly limits?: Partial<FileLimits>;
  readonly nodeName?: string;
  readonly sink?: RecordingSink;
}

/** A state file that is followed by the real source, until the test ends. `heard`: its events, in a few words each. */
export function followFile(
  t: Test,
  text: string | undefined,
  { nodeName = 'n1', sink = new RecordingSink(), limits, ...options }: RigOptions = {},
) {
  const path = join(t.testdir(text === undefined ? {} : { 'state.yaml': text }), 'state.yaml');
  const source = fileSource({
    path,
    limits: { ...DEFAULT_FILE_LIMITS, settleMs: 10, ...limits },
    ...options,
  });
  const heard: string[] = [];
  const note = <Event extends { path: string }>(
    channel: TypedChannel<Event>,
    wordsOf: (event: Event) => string,
  ): void => listening(t, channel, (event) => event.path === path && heard.push(wordsOf(event)));
  note(fileLoaded, ({ services, parsedItems }) => `loaded ${services}, parsed ${parsedItems}`);
  note(fileInvalid, ({ error }) => `${error.code}: ${error.message}`);
  note(fileReadFailed, ({ error }) => `${error.code}: ${error.message}`);
  note(fileRecovered, () => 'recovered');
  listening(t, sourceSynced, ({ source: name, services, changed }) => {
    if (name === source.name) heard.push(`synced ${services}, changed ${changed}`);
  });
  const abort = new AbortController();
  const done = feedLocalSink({ source, nodeName, hasher }, sink, abort.signal);
  t.teardown(async () => {
    abort.abort();
    await done;
  });
  return { path, sink, heard, abort, done };
}
