/**
 * Writes state in kpng's format: every key, absent values as null, protocols as numbers. Go kpng refuses the whole file
 * for an unknown key, and crashes for session affinity and endpoints without addresses, so these extensions are
 * optional. It also crashes for nodes and endpoints without topology, which is therefore always written.
 */
import type { EndpointInfo, Node } from '../api/generated/globalv1/api.ts';
import { plainEndpoint, plainService, sortedMap } from '../api/json.ts';
import { KpngError, messageOf } from '../errors.ts';
import { sinkFailed, sinkRecovered } from '../store/events.ts';
import type { GlobalStore } from '../store/global-store.ts';
import { Backoff, DEFAULT_BACKOFF, type BackoffPolicy } from '../util/backoff.ts';
import { pause, systemClock, type Clock } from '../util/clock.ts';
import { writeAtomically } from '../util/atomic-file.ts';
import { zoneOf } from '../store/stored.ts';
import { flowText } from '../util/yaml-text.ts';

export interface FileSinkOptions {
  readonly store: GlobalStore;
  readonly path: string;
  /** Whether to write what Go kpng cannot read. Default: no. */
  readonly extended?: boolean | undefined;
  readonly backoff?: BackoffPolicy | undefined;
  readonly clock?: Clock | undefined;
  readonly random?: (() => number) | undefined;
}

/** Minimum interval between writes. Milliseconds. */
export const DEFAULT_INTERVAL_MS = 1000;

/**
 * Keeps a state file up to date with a store. After a change the whole file is rewritten atomically, at most once per
 * interval. Nothing is written before the state is synced. A failed write is retried with the state at that time.
 */
export function startFileSink({
  store,
  path,
  extended,
  backoff: policy = DEFAULT_BACKOFF,
  clock = systemClock,
  random = Math.random,
}: FileSinkOptions) {
  const stop = new AbortController();
  const backoff = new Backoff(policy, random);
  let written = 0;
  let failures = 0;
  let dueAt = -Infinity;
  let wake = (): void => undefined;
  const stopListening = store.onChange(() => wake());
  stop.signal.addEventListener('abort', () => wake());
  const isBehind = (): boolean => store.synced && store.revision > written;
  const follow = async (): Promise<void> => {
    for (let isLast = false; !isLast;) {
      if (!isBehind() && !stop.signal.aborted)
        await new Promise<void>((resolve) => (wake = resolve));
      const waitMs = dueAt - clock.now();
      if (isBehind() && waitMs > 0) await pause(waitMs, clock, stop.signal);
      isLast = stop.signal.aborted;
      if (!isBehind()) continue;
      // Writing takes several turns, but must show a single moment.
      const pin = store.pin();
      try {
        await writeAtomically(path, stateText(store, pin.revision, extended));
        written = pin.revision;
        if (failures > 0) sinkRecovered.publish({ failures });
        failures = 0;
        backoff.reset();
        dueAt = clock.now() + DEFAULT_INTERVAL_MS;
      } catch (cause) {
        failures += 1;
        const retryInMs = backoff.next();
        dueAt = clock.now() + retryInMs;
        const message = `The state could not be written to ${path}: ${messageOf(cause)}`;
        const error = new KpngError('KPNG_SINK_FAILED', message, { cause });
        sinkFailed.publish({ error, waiting: store.serviceCount, retryInMs });
      } finally {
        pin.release();
      }
    }
    stopListening();
  };
  const done = follow();
  return {
    /** Resolves when the file is up to date or cannot be written. Idempotent. */
    async close(): Promise<void> {
      stop.abort();
      await done;
    },
  };
}

/** An item of `nodes`. Go kpng does not read the zone label, so its zone is written as the topology's. */
function nodeItem(from: Node): object {
  const { name, labels, annotations } = from;
  const topology = { node: from.topology?.node ?? '', zone: zoneOf(from) };
  return { name, labels: sortedMap(labels), annotations: sortedMap(annotations), topology };
}

function endpointItem(info: EndpointInfo, extended: boolean): object {
  const { endpoint, conditions, hints, topology } = info;
  const nodes = extended && hints !== undefined && hints.nodes.length > 0;
  return {
    hash: info.hash,
    namespace: info.namespace,
    sourcename: info.sourceName,
    servicename: info.serviceName,
    endpoint: endpoint && { ...plainEndpoint(endpoint), local: false, scopes: null },
    conditions: conditions && {
      ready: conditions.ready,
      ...(extended && conditions.serving && { serving: true }),
      ...(extended && conditions.terminating && { terminating: true }),
    },
    podname: info.podName,
    topology: topology ?? { node: '', zone: '' },
    hints: hints && { zones: hints.zones, ...(nodes && { nodes: hints.nodes }) },
  };
}

/** Maps in block style, and lists with one item per line. */
const BLOCKS: ReadonlySet<string> = new Set(['service', 'ips', 'ports', 'endpoints']);

/** A map in block style, one value per line. */
function blockText(indent: string, map: object): string {
  const lines = Object.entries(map).map(([key, value]: [string, unknown]) => {
    const isBlock = BLOCKS.has(key) && typeof value === 'object' && value !== null;
    if (!isBlock || (Array.isArray(value) && value.length === 0)) {
      return `${indent}${key}: ${flowText(value)}\n`;
    }
    if (!Array.isArray(value)) return `${indent}${key}:\n${blockText(`${indent}  `, value)}`;
    const items = value.map((each: object) =>
      key === 'ports' ? `${indent}- ${flowText(each)}\n` : itemText(indent, each),
    );
    return `${indent}${key}:\n${items.join('')}`;
  });
  return lines.join('');
}

/** A map as an item of a list. */
function itemText(indent: string, item: object): string {
  return `${indent}- ${blockText(`${indent}  `, item).trimStart()}`;
}

/**
 * The state of a store at a pinned revision as the text of a state file, in pieces: nodes by name,
 * services by namespace and name, their endpoints by source and hash. Endpoints without their service are
 * left out. `extended`: with what Go kpng cannot read; default: no.
 */
export function* stateText(
  store: GlobalStore,
  revision: number,
  extended = false,
): Generator<string> {
  const { nodes, services, hasher } = store;
  yield* sectionText('nodes', nodes.keys(), (key) => {
    const node = nodes.at(key, revision);
    return node && nodeItem(node);
  });
  yield* sectionText('services', services.keys(), (key) => {
    const record = services.at(key, revision);
    const endpoints = (record?.inPathOrder(hasher) ?? [])
      .map(([, info]) => info)
      .filter((info) => extended || info.endpoint !== undefined);
    return (
      record?.service && {
        service: { ...plainService(record.service), ...(!extended && { sessionaffinity: null }) },
        endpoints: endpoints.map((each) => endpointItem(each, extended)),
      }
    );
  });
}

function* sectionText(
  name: string,
  keys: readonly string[],
  itemOf: (key: string) => object | undefined,
): Generator<string> {
  let title = `${name}:\n`;
  for (const key of keys) {
    const item = itemOf(key);
    if (item === undefined) continue;
    yield title + itemText('', item);
    title = '';
  }
  if (title !== '') yield `${name}: []\n`;
}
