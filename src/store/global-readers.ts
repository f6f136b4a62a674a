import type { Hasher } from '../api/hash.ts';
import { type ChangeSet, type Position, Readers } from './reader.ts';
import type { ServiceRecord } from './service-record.ts';
import type { EndpointInfo, Node } from '../api/generated/globalv1/api.ts';
import {
  endpointEntry,
  type Entry,
  globalNodeEntry,
  globalServiceEntry,
  isSameEntry,
} from './stored.ts';
import { compareKeys, sorter, type Cell } from './table.ts';

type ServiceCell = Cell<ServiceRecord>;

/** Change sets of up to this many entries are built once for all clients; larger ones while they are sent. */
const SMALL = 1000;

/** Readers of the whole state. All clients that have seen the same revision get the same bytes. */
export class GlobalReaders extends Readers {
  /** By the revision that they start from. */
  readonly #changeSets = new Map<number, readonly Buffer[]>();
  readonly #sorted = sorter(byPath);

  protected clear(): void {
    this.#changeSets.clear();
  }

  protected between(older: Position | undefined, newer: Position): ChangeSet {
    // There is nothing at revision 0.
    const from = older?.pin.revision ?? 0;
    const known = this.#changeSets.get(from);
    if (known !== undefined) return known;
    const { nodes, services } = this.store;
    const [nodeCells, serviceCells] =
      from === 0
        ? [nodes.cells(), this.#sorted(services.cells())]
        : [
            [...nodes.changedSince(from)].sort((a, b) => compareKeys(a.key, b.key)),
            [...services.changedSince(from)].sort(byPath),
          ];
    const frames = framesOf(nodeCells, serviceCells, [from, newer.pin.revision], this.store.hasher);
    if (nodeCells.length + serviceCells.length > SMALL) return frames;
    const made = [...frames];
    const joined = made.length === 0 ? [] : [Buffer.concat(made)];
    this.#changeSets.set(from, joined);
    return joined;
  }
}

/** Global paths join their parts with `|`, which sorts differently from the `/` of the keys. */
function byPath(a: ServiceCell, b: ServiceCell): number {
  return compareKeys(`${a.key.replace('/', '|')}|`, `${b.key.replace('/', '|')}|`);
}

/**
 * The operations in kpng's order: nodes, services, endpoints, and the reverse for removals. Within a step,
 * additions are in order of their path, deletions in the opposite order.
 */
function* framesOf(
  nodes: readonly Cell<Node>[],
  services: readonly ServiceCell[],
  [from, to]: readonly [from: number, to: number],
  hasher: Hasher,
): Generator<Buffer, void, undefined> {
  const gone: Entry[] = [];
  for (const cell of nodes) {
    const [before, after] = [cell.at(from), cell.at(to)].map(
      (node) => node && globalNodeEntry(node, hasher),
    );
    if (after === undefined) gone.push(...(before === undefined ? [] : [before]));
    else if (!isSameEntry(before, after)) yield after.frame;
  }
  for (const cell of services) {
    const [before, after] = [cell.at(from)?.service, cell.at(to)?.service].map(
      (service) => service && globalServiceEntry(service, hasher),
    );
    if (after === undefined) gone.push(...(before === undefined ? [] : [before]));
    else if (!isSameEntry(before, after)) yield after.frame;
  }
  for (const cell of services) {
    const [before, after] = [cell.at(from), cell.at(to)];
    if (before === undefined && after !== undefined) {
      if (after.endpoints.length > 0) yield after.globalFrames(hasher);
      continue;
    }
    const [old, updated] = [byPathOf(before, hasher), byPathOf(after, hasher)];
    for (const [path, info] of updated) {
      // With an equal path, the pod's name and hints may differ.
      const same = old.get(path);
      if (same === info) continue;
      const after = endpointEntry(info, hasher);
      if (!isSameEntry(same && endpointEntry(same, hasher), after)) yield after.frame;
    }
    for (const [path, info] of old) {
      if (!updated.has(path)) gone.push(endpointEntry(info, hasher));
    }
  }
  for (const entry of gone.reverse()) yield entry.deletion();
}

/** The last of several equal endpoints counts; only their names differ. */
function byPathOf(
  record: ServiceRecord | undefined,
  hasher: Hasher,
): ReadonlyMap<string, EndpointInfo> {
  return new Map(record?.inPathOrder(hasher) ?? []);
}
