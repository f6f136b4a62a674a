/** Runs in the namespace: proxier, portal and engine, as the backend `to-userspace` puts them together. */
import { loadHasher } from '../../src/api/hash.ts';
import { collectAfterFirst, keepHeapSmall, optimizeLate } from '../../src/cli/small-heap.ts';
import { createPortal } from '../../src/cli/sinks/userspace-portal.ts';
import type { UserspaceOptions } from '../../src/cli/sinks/userspace-options.ts';
import { parseRun } from '../../src/cli/parse.ts';
import { createLog } from '../../src/observe/log.ts';
import { systemExec, type Exec } from '../../src/portal/exec.ts';
import { Proxier } from '../../src/proxier/proxier.ts';
import { createNodeEngine } from '../../src/proxysocket/node/engine.ts';
import { Pool } from '../../src/proxysocket/pool/pool.ts';
import { systemClock } from '../../src/util/clock.ts';
import { answerRequests, settings } from '../support/dialogue.ts';
import { Feed } from './feed.ts';
import type { ChangeKind, ColdStart } from './subject.ts';

export interface WorkerSettings {
  /** Flags of the backend. */
  readonly flags: readonly string[];
}

export type WorkerRequest =
  | { readonly do: 'start'; readonly services: number }
  | { readonly do: 'change'; readonly kind: ChangeKind; readonly n: number }
  | { readonly do: 'processes' };

keepHeapSmall();
const { flags } = settings() as WorkerSettings;
let processes = 0;
const exec: Exec = (command) => {
  processes += 1;
  return systemExec(command);
};

const options = readOptions(flags);
const log = await createLog({ format: 'text', verbosity: 0 });
const portal = await createPortal(options, { ...log, info: () => undefined }, { exec });
const { limits } = options;
const engine = await (portal.kind === 'transparent'
  ? Pool.start({ limits })
  : createNodeEngine({ limits }));
optimizeLate();
const proxier = new Proxier({ engine, portal });
// The garbage of the first state is collected before changes are measured, not in their midst.
const clock = { ...systemClock, setTimer: (_: number, action: () => void) => soon(action) };
const feed = new Feed(proxier, await loadHasher());

answerRequests(async (request: WorkerRequest) => {
  switch (request.do) {
    case 'start':
      return start(request.services);
    case 'change':
      return feed.change(request.kind, request.n);
    case 'processes':
      return processes;
    default:
      return request satisfies never;
  }
});

function soon(action: () => void) {
  return systemClock.setTimer(100, action);
}

/** Options of the backend, as the command line gives them. */
function readOptions(words: readonly string[]): UserspaceOptions {
  const { sink } = parseRun(['file', '--input=none', 'to-local', 'to-userspace', ...words]);
  return sink.options as UserspaceOptions;
}

async function start(services: number): Promise<ColdStart> {
  const before = processes;
  const { at, doneAt } = await feed.start(services);
  collectAfterFirst(engine, clock);
  const served = engine
    .snapshot()
    .filter(({ listeners }) => listeners.some(({ state }) => state === 'listening')).length;
  return { ms: doneAt - at, served, processes: processes - before };
}
