import type { EndpointInfo } from '../api/generated/globalv1/api.ts';
import { type ChangeSet, type Position, Readers, SMALL } from './reader.ts';
import type { ServiceRecord } from './service-record.ts';
import {
  difference,
  endpointEntry,
  type Entry,
  globalNodeEntry,
  globalServiceEntry,
} from './stored.ts';
import { compareKeys } from './table.ts';

/** Readers of the whole state. All clients that have seen the same revision get the same bytes. */
export class GlobalReaders extends Readers {
  protected between(older: Position | undefined, newer: Position): ChangeSet | undefined {
    const from = older?.revision ?? 0;
    const { nodes, services } = this.store;
    const [nodeKeys, serviceKeys] = [
      nodes.keys(undefined, from),
      services.keys(byGlobalPath, from),
    ];
    const frames = this.#framesOf(nodeKeys, serviceKeys, from, newer.revision);
    const isLarge = nodeKeys.length + serviceKeys.length > SMALL;
    return isLarge ? frames : this.joined(String(from), () => frames);
  }

  /**
   * The operations in kpng's order: nodes, services, endpoints, and the reverse for removals. Within a step,
   * additions are in order of their path, deletions in the opposite order.
   */
  *#framesOf(
    nodeKeys: readonly string[],
    serviceKeys: readonly string[],
    from: number,
    to: number,
  ): Generator<Buffer, void, undefined> {
    const { nodes, services, hasher } = this.store;
    const gone: Entry[] = [];
    for (const key of nodeKeys) {
      const [before, after] = [nodes.at(key, from), nodes.at(key, to)].map(
        (node) => node && globalNodeEntry(node, hasher),
      );
      yield* difference(before, after, gone);
    }
    for (const key of serviceKeys) {
      const [before, after] = [services.at(key, from), services.at(key, to)].map(
        (record) => record?.service && globalServiceEntry(record.service, hasher),
      );
      yield* difference(before, after, gone);
    }
    for (const key of serviceKeys) {
      const [before, after] = [services.at(key, from), services.at(key, to)];
      if (before === undefined && after !== undefined) {
        if (after.endpoints.length > 0) yield after.globalFrames(hasher);
        continue;
      }
      // The last of several equal endpoints counts; only their names differ.
      const byPath = (record: ServiceRecord | undefined): ReadonlyMap<string, EndpointInfo> =>
        new Map(record?.inPathOrder(hasher) ?? []);
      const [old, updated] = [byPath(before), byPath(after)];
      for (const [path, info] of updated) {
        // With an equal path, the pod's name and hints may differ.
        const same = old.get(path);
        if (same === info) continue;
        yield* difference(same && endpointEntry(same, hasher), endpointEntry(info, hasher), gone);
      }
      for (const [path, info] of old) {
        if (!updated.has(path)) gone.push(endpointEntry(info, hasher));
      }
    }
    for (const entry of gone.reverse()) yield entry.deletion();
  }
}

/** Global paths join their parts with `|`, which sorts differently from the `/` of the keys. */
function byGlobalPath(a: string, b: string): number {
  return compareKeys(`${a.replace('/', '|')}|`, `${b.replace('/', '|')}|`);
}
