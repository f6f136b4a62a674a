import { KpngError } from '../errors.ts';
import type { Log } from '../observe/log.ts';
import type { GlobalSource } from '../store/global-store.ts';
import { nameList } from '../util/suggest.ts';

/** The error if a source has nodes, but not this one. */
export function unknownNode(node: string, names: readonly string[], source: string): KpngError {
  return new KpngError(
    'KPNG_NODE_UNKNOWN',
    `--node-name ${JSON.stringify(node)}: the ${source} has no such node; it has ${nameList(names)}`,
  );
}

/**
 * The source, with a warning when its state has nodes but not this one: then no endpoint is local. One warning each time
 * that it goes missing.
 */
export function checkingNode(source: GlobalSource, node: string, log: Log): GlobalSource {
  return {
    name: source.name,
    async feed(store, signal) {
      let isMissing = false;
      const end = store.onChange(() => {
        const wasMissing = isMissing;
        isMissing =
          store.synced &&
          store.nodes.get(node) === undefined &&
          store.nodes.cells().some(({ value }) => value !== undefined);
        if (wasMissing || !isMissing) return;
        const names = store.nodes.cells().flatMap(({ key, value }) => (value ? [key] : []));
        const err = unknownNode(node, names, source.name);
        log.warn('Unknown node: no endpoint counts as local; set --node-name', { err });
      });
      await source.feed(store, signal).finally(end);
    },
  };
}
