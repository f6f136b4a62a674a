import type { AcceptorEngine } from '../core/acceptor-engine.ts';
import type { BookKeeper } from './book-keeper.ts';
import type { Outbox } from './outbox.ts';
import type { Command } from './protocol.ts';

export interface CommandParts {
  readonly engine: AcceptorEngine;
  readonly keeper: BookKeeper;
  readonly outbox: Outbox;
  /** Closes what the worker before this one had and this one has not taken. */
  readonly closeFormer: () => void;
  /** The worker has been told to end. */
  readonly onEnding?: () => void;
  /** Its engine has ended. */
  readonly onEnded: () => void;
}

/**
 * Does what a worker is told and tells when it is done, or why it failed; never rejects. What needs no waiting is done
 * when this returns, as promises stand still in a thread whose loop blocks.
 */
export async function carryOut(command: Command, parts: CommandParts): Promise<void> {
  const { engine, keeper, outbox } = parts;
  try {
    switch (command.kind) {
      case 'inspect':
        outbox.found(command.id, engine.inspectNow(command.query));
        return;
      case 'limits':
        engine.setLimitsNow(command.limits);
        break;
      case 'apply':
        keeper.changed(command.changes);
        await engine.apply(command.changes);
        // The first batch has everything that the worker before this one had.
        parts.closeFormer();
        break;
      case 'close':
      case 'destroy':
        parts.onEnding?.();
        await (command.kind === 'close' ? engine.close(command.heir) : engine.destroy());
        parts.onEnded();
        break;
    }
    outbox.done(command.id);
  } catch (error) {
    outbox.done(command.id, error);
  }
  if (command.kind === 'apply') keeper.changed(command.changes);
}
