import { quote } from '../api/ops.ts';
import { KpngError } from '../errors.ts';
import type { LocalState, Orphans } from '../store/local-state.ts';
import type { LocalChange } from '../store/local-view.ts';
import type { OpStream } from './stream.ts';

export interface WatchOptions {
  /** Collects the operations; keeps what it has from one stream to the next. */
  readonly state: LocalState;
  /** Sent with each request. May be empty, which a kpng server takes for a node without anything local. */
  readonly nodeName: string;
  /** Calls `complete` when the view may change, and resolves when the change was dealt with. */
  readonly deliver: (complete: () => LocalChange) => Promise<void>;
  /** Something came that cannot be used, or not yet. It is skipped. */
  readonly onInvalid: (error: KpngError) => void;
  /** Return after the first change set. */
  readonly once: boolean;
}

/**
 * Watches one stream: one request buys one change set, and the next request goes out only when the
 * change set was dealt with. So a slow sink makes the server gather changes, which costs neither side
 * anything.
 *
 * Returns only with `once`; otherwise it ends with the error that the stream ends with.
 */
export async function watch(stream: OpStream, options: WatchOptions): Promise<void> {
  const { state, nodeName, deliver, onInvalid, once } = options;
  // A server says Reset by itself. Should one not do so, its first change set is the full data all
  // the same, since it knows nothing of the stream before.
  state.reset();
  let opsInChangeSet = 0;
  stream.request(nodeName);
  for await (const op of stream) {
    switch (op.kind) {
      case 'sync':
        opsInChangeSet = 0;
        await deliver(() => {
          const change = state.sync();
          for (const orphans of state.newOrphans) onInvalid(serviceMissing(orphans));
          return change;
        });
        if (once) return;
        stream.request(nodeName);
        break;
      case 'reset':
        if (opsInChangeSet > 0) onInvalid(resetWithin(opsInChangeSet));
        opsInChangeSet = 0;
        state.reset();
        break;
      case 'invalid':
        opsInChangeSet++;
        onInvalid(op.error);
        state.apply(op);
        break;
      case 'setService':
      case 'deleteService':
      case 'setEndpoint':
      case 'deleteEndpoint':
        opsInChangeSet++;
        state.apply(op);
    }
  }
}

function serviceMissing({ service, endpoint, count }: Orphans): KpngError {
  const others = count === 1 ? '' : ` and of ${count - 1} more`;
  return new KpngError(
    'KPNG_OP_INVALID',
    `Set of endpoint ${quote(`${service}/${endpoint}`)}${others}: there is no such service; to be used when it comes.`,
  );
}

function resetWithin(count: number): KpngError {
  const what = count === 1 ? 'the operation' : `the ${count} operations`;
  return new KpngError(
    'KPNG_OP_INVALID',
    `Reset in the middle of a change set: ${what} before it do not count, the full data set is expected to follow.`,
  );
}
