import { setImmediate as nextTurn } from 'node:timers/promises';
import { systemClock, type Clock } from '../../util/clock.ts';
import { hostAddresses, type HostAddress } from '../../util/host-addresses.ts';
import { canSteer } from '../linux/can-steer.ts';
import { FormerListeners } from '../linux/former-listeners.ts';
import {
  addressProbe,
  errnoProbeOf,
  functionsProbe,
  newSys,
  platformProbe,
} from '../linux/probes/basics.ts';
import { ProbeFailure, runProbes, type Probe } from '../linux/probes/probe.ts';
import { DescriptorLedger } from '../core/descriptor-ledger.ts';
import { createNodeEngine } from '../node/engine.ts';
import { BookKeeper } from '../threads/book-keeper.ts';
import { carryOut, type CommandParts } from '../threads/carry-out.ts';
import { CounterSlots } from '../threads/counter-slots.ts';
import { Outbox } from '../threads/outbox.ts';
import { CONTROL, type Command, type Notice, type WorkerStart } from '../threads/protocol.ts';
import { KeptSockets } from './kept-sockets.ts';

/**
 * What has to be true before system calls may open the sockets that threads share.
 *
 * They are few, and so are those of the probes: V8 optimises calls that are made often in a thread of its own,
 * and crashes when the thread whose functions they are ends meanwhile (seen with Node 26.10).
 */
export const SOCKET_PROBES: readonly Probe[] = [
  platformProbe(),
  functionsProbe,
  errnoProbeOf(8),
  addressProbe,
];

export interface NodeWorkerParts {
  /** Its timers run when `run` says so, if it has that: whenever the main thread wants to be told. */
  readonly clock?: Clock & { run?(): void };
  /** Evenly distributed in [0, 1), as `Math.random`. */
  readonly random?: () => number;
  readonly probes?: readonly Probe[];
}

/**
 * The life of a worker thread of the `node` engine, until it is told to end. It turns Node's own event loop:
 * commands are messages, and what there is to tell is posted once for each turn.
 */
export async function runNodeWorker(
  start: WorkerStart,
  parts: NodeWorkerParts = {},
): Promise<void> {
  const { port, limits } = start;
  const { random = Math.random, probes = SOCKET_PROBES } = parts;
  const clock: Clock & { run?(): void } = parts.clock ?? systemClock;
  const control = new Int32Array(start.control);
  const outbox = new Outbox(port, control, () => reportSoon());
  const ledger = new DescriptorLedger(start.ledger);
  const findings = await runProbes(probes, { ledger }).catch((error: unknown) => {
    if (!(error instanceof ProbeFailure)) throw error;
    outbox.tell({ unfit: { probe: error.probe, reason: error.message } });
  });
  if (findings === undefined) {
    port.close();
    return;
  }
  const sys = newSys(findings);
  const former =
    start.orphans &&
    new FormerListeners(sys, new DescriptorLedger(start.orphans), start.formerPlaces);
  const slots = new CounterSlots((memory) => outbox.block(memory));
  let host: readonly HostAddress[] | undefined;
  const engine = createNodeEngine({
    limits,
    clock,
    random,
    descriptorLimit: start.descriptorLimit,
    counters: slots,
    sockets: new KeptSockets(sys, { former, backlog: limits.backlog }),
    formerPort: (key) => start.formerPorts.get(key),
    hostAddresses: () => host ?? hostAddresses(),
  });
  process.once('uncaughtExceptionMonitor', () => {
    try {
      engine.cut();
    } catch {
      // It dies of the first error, which is told; whatever has come of it is not.
    }
  });
  const keeper = new BookKeeper(engine, slots, outbox, () => reportSoon());

  const report = (): void => {
    keeper.report();
    outbox.flush();
  };
  let isDue = false;
  function reportSoon(): void {
    if (isDue) return;
    isDue = true;
    setImmediate(() => {
      isDue = false;
      report();
    });
  }

  const ended = Promise.withResolvers<void>();
  const commandParts: CommandParts = {
    engine,
    keeper,
    outbox,
    closeFormer: () => former?.closeRest(),
    onEnded: () => ended.resolve(),
  };

  /** Whoever waits until everything is done and told, is told so. */
  const look = async (): Promise<void> => {
    const asked = Atomics.load(control, CONTROL.syncAsked);
    outbox.subscribe();
    clock.run?.();
    if (Atomics.load(control, CONTROL.syncDone) >= asked) return;
    // What the kernel has by now comes up in the rest of this turn or in the next one.
    do await nextTurn();
    while (engine.isBusy);
    await nextTurn();
    report();
    if (Atomics.load(control, CONTROL.syncDone) < asked) {
      Atomics.store(control, CONTROL.syncDone, asked);
    }
    Atomics.notify(control, CONTROL.syncDone);
  };

  port.on('message', (message: Command | Notice) => {
    if (message.kind === 'look') void look();
    else if (message.kind === 'host') host = message.addresses;
    else void carryOut(message, commandParts);
  });
  outbox.tell({ ready: { steers: canSteer(sys) } });
  await ended.promise;
  report();
  port.close();
}
