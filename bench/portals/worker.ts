/** Runs in the namespace: proxier, portal and engine, as the backend `to-userspace` puts them together. */
import { createPortal } from '../../src/cli/sinks/userspace-portal.ts';
import type { UserspaceOptions } from '../../src/cli/sinks/userspace-options.ts';
import { parse } from '../../src/cli/parse.ts';
import { createLog } from '../../src/observe/log.ts';
import { systemExec, type Exec } from '../../src/portal/exec.ts';
import { Proxier } from '../../src/proxier/proxier.ts';
import type { Engine } from '../../src/proxysocket/engine.ts';
import { createNodeEngine } from '../../src/proxysocket/node/engine.ts';
import { Pool } from '../../src/proxysocket/pool/pool.ts';
import { answerRequests } from '../support/dialogue.ts';
import { settings } from '../support/worker.ts';
import { now } from './clock.ts';
import { EngineWithoutSockets } from './engine-without-sockets.ts';
import { ENDPOINT_ADDRESSES } from './network.ts';
import { BenchView, NAMESPACE, serviceEntry, serviceName } from './services.ts';
import type { ChangeKind, ColdStart, Moment } from './subject.ts';

export interface WorkerSettings {
  /** Flags of the backend. */
  readonly flags: readonly string[];
  /** Without sockets: what the rules alone take. */
  readonly rulesAlone: boolean;
}

export type WorkerRequest =
  | { readonly do: 'start'; readonly services: number }
  | { readonly do: 'change'; readonly kind: ChangeKind; readonly n: number }
  | { readonly do: 'processes' };

/** When a change was handed over, and when it was in place. */
export interface OwnChange {
  readonly at: Moment;
  readonly doneAt: Moment;
}

const { flags, rulesAlone } = settings() as WorkerSettings;
let processes = 0;
const exec: Exec = (command) => {
  processes += 1;
  return systemExec(command);
};

const options = readOptions(flags);
const log = await createLog({ format: 'text', verbosity: 0 });
const portal = await createPortal(options, { ...log, info: () => undefined }, exec);
const { limits } = options;
const engine = await createEngine();
const proxier = new Proxier({ engine, portal });
const view = new BenchView();

answerRequests(async (request: WorkerRequest) => {
  switch (request.do) {
    case 'start':
      return start(request.services);
    case 'change':
      return change(request.kind, request.n);
    case 'processes':
      return processes;
    default:
      return request satisfies never;
  }
});

async function createEngine(): Promise<Engine> {
  if (rulesAlone) return new EngineWithoutSockets();
  return portal.kind === 'transparent' ? Pool.start({ limits }) : createNodeEngine({ limits });
}

/** Options of the backend, as the command line gives them. */
function readOptions(words: readonly string[]): UserspaceOptions {
  const invocation = parse(['file', '--input=none', 'to-local', 'to-userspace', ...words]);
  if (invocation.kind === 'usage-error') throw invocation.error;
  if (invocation.kind !== 'run') throw new TypeError(`${words.join(' ')}: no flags of a backend`);
  return invocation.sink.options as UserspaceOptions;
}

async function start(services: number): Promise<ColdStart> {
  for (let n = 0; n < services; n += 1) view.set(serviceEntry(n));
  const before = processes;
  const begin = now();
  await proxier.sync({ view, changed: new Set() });
  const ms = now() - begin;
  const served = engine
    .snapshot()
    .filter(({ listeners }) => listeners.some(({ state }) => state === 'listening')).length;
  return { ms, served, processes: processes - before };
}

async function change(kind: ChangeKind, n: number): Promise<OwnChange> {
  const key = `${NAMESPACE}/${serviceName(n)}`;
  if (kind === 'removed') view.delete(key);
  else view.set(serviceEntry(n, kind === 'added' ? ENDPOINT_ADDRESSES.slice(0, 1) : undefined));
  const at = now();
  await proxier.sync({ view, changed: new Set([key]) });
  return { at, doneAt: now() };
}
