import { KpngError } from '../errors.ts';
import type { Log } from '../observe/log.ts';
import type { GlobalSource, GlobalStore } from '../store/global-store.ts';
import { nameList } from '../util/suggest.ts';

/** The error of a node that a source does not know, of which it knows others. */
export function unknownNode(node: string, names: readonly string[], source: string): KpngError {
  return new KpngError(
    'KPNG_NODE_UNKNOWN',
    `--node-name ${JSON.stringify(node)}: the ${source} has no such node; it has ${nameList(names)}`,
  );
}

/**
 * The source, with a warning when its state has nodes but not this one: no endpoint is local then, no matter how the
 * name is misspelt. One warning for each time that it is missing.
 */
export function checkingNode(source: GlobalSource, node: string, log: Log): GlobalSource {
  return {
    name: source.name,
    async feed(store, signal) {
      let isMissing = false;
      const end = store.onChange(() => {
        const wasMissing = isMissing;
        isMissing = store.synced && store.nodes.size > 0 && store.nodes.get(node) === undefined;
        if (wasMissing || !isMissing) return;
        const err = unknownNode(node, nodeNames(store), source.name);
        log.warn('Unknown node: no endpoint counts as local; set --node-name', { err });
      });
      await source.feed(store, signal).finally(end);
    },
  };
}

function nodeNames({ nodes }: GlobalStore): string[] {
  return nodes.cells().flatMap(({ key, value }) => (value === undefined ? [] : [key]));
}
