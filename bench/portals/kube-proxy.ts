import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { tempFolder } from '../../examples/support/temp-folder.ts';
import { until } from '../../examples/support/until.ts';
import { KUBE_API, type KubeApiRequest, type KubeService } from '../peers/kube-api.ts';
import { kubeconfigFor, kubeProxyFlags } from '../peers/kube-proxy.ts';
import { startScript } from '../support/dialogue.ts';
import { ENDPOINT_ADDRESSES, NODE_ADDRESS, type BenchNetwork } from './network.ts';
import { NAMESPACE, serviceAddress, serviceName } from './services.ts';
import { now, type Moment, type Subject } from './subject.ts';

const NODE_NAME = 'bench-node';

/** For a state that never comes. Milliseconds. */
const WITHIN = 600_000;

function serviceOf(n: number, endpoints: readonly string[] = ENDPOINT_ADDRESSES): KubeService {
  return { key: `${NAMESPACE}/${serviceName(n)}`, address: serviceAddress(n), endpoints };
}

/**
 * A kube-proxy of 1.20 in its userspace mode, fed by the API server of our tests. What cannot be seen from
 * outside is read in its log: each rule that it has written, and each program that it runs.
 */
export function kubeProxy(network: BenchNetwork, path: string): Subject {
  const api = startScript(KUBE_API, {}, network.command());
  const ask = <Answer>(request: KubeApiRequest): Promise<Answer> => api.ask<Answer>(request);
  const folder = tempFolder('kube-proxy');
  const kubeconfig = join(folder.path, 'kubeconfig');
  const [file = '', ...args] = network.command(
    path,
    // At 5 it logs each run of iptables.
    ...kubeProxyFlags({ kubeconfig, nodeName: NODE_NAME, verbosity: 5 }),
  );
  const log = new ProxyLog();
  let child: ReturnType<typeof spawn> | undefined;
  const kill = (): void => void child?.kill('SIGKILL');
  process.once('exit', kill);
  return {
    name: 'kube-proxy userspace',
    get pid() {
      return child?.pid ?? 0;
    },
    processes: async () => log.processes,
    async start(services) {
      const url = await ask<string>({
        do: 'start',
        nodeName: NODE_NAME,
        nodeAddress: NODE_ADDRESS,
        services: Array.from({ length: services }, (_, n) => serviceOf(n)),
      });
      writeFileSync(kubeconfig, kubeconfigFor(url));
      child = spawn(file, args, { stdio: ['ignore', 'ignore', 'pipe'], detached: true });
      if (child.stderr === null) throw new Error('no pipe');
      log.follow(child.stderr);
      const at = await until(
        'kube-proxy has written every rule',
        () => {
          if (child?.exitCode !== null) throw new Error(`kube-proxy has ended:\n${log.tail()}`);
          return log.rulesAt(services);
        },
        { within: WITHIN, every: 100 },
      );
      const ms = at - (await ask<Moment>({ do: 'askedAt' }));
      const { processes } = log;
      await log.synced();
      return { ms, served: services, processes };
    },
    async change(kind, n) {
      log.expectChange(kind !== 'endpoint');
      const service = serviceOf(n, ENDPOINT_ADDRESSES.slice(0, kind === 'added' ? 1 : 2));
      if (kind === 'removed') return ask<Moment>({ do: 'remove', key: service.key });
      return ask<Moment>({ do: 'put', service, endpointsOnly: kind === 'endpoint' });
    },
    settled: () => log.synced(),
    async close() {
      process.off('exit', kill);
      if (child !== undefined && child.exitCode === null) {
        const ended = once(child, 'exit');
        kill();
        await ended;
      }
      await api.kill();
      folder.remove();
    },
  };
}

/** Reads kube-proxy's log as it is written. */
class ProxyLog {
  processes = 0;
  #rules = 0;
  #rulesAt = 0;
  /** Whether a sync has to take a change in before it counts. */
  #pending: 'nothing' | 'change' | 'end' = 'change';
  #onSynced = Promise.withResolvers<Moment | undefined>();
  readonly #last: string[] = [];

  follow(stream: NodeJS.ReadableStream): void {
    createInterface({ input: stream }).on('line', (line) => this.#read(line));
  }

  /** When the n-th service had its last rule; undefined: not yet. */
  rulesAt(services: number): number | undefined {
    return this.#rules >= services ? this.#rulesAt : undefined;
  }

  /** From now on a sync counts only if it takes in a change of a service, or none has to come. */
  expectChange(ofService: boolean): void {
    this.#onSynced = Promise.withResolvers();
    if (ofService) this.#pending = 'change';
    else this.#onSynced.resolve(undefined);
  }

  /** Resolves when the sync has ended that took in the last change; undefined: there is no such sync. */
  synced(): Promise<Moment | undefined> {
    return this.#onSynced.promise;
  }

  tail(): string {
    return this.#last.join('\n');
  }

  #read(line: string): void {
    this.#last.push(line);
    if (this.#last.length > 20) this.#last.shift();
    if (/\] running /.test(line)) this.processes += 1;
    if (line.includes('Opened iptables from-host portal')) {
      this.#rules += 1;
      this.#rulesAt = now();
    } else if (/processing [1-9]\d* service events/.test(line)) {
      if (this.#pending === 'change') this.#pending = 'end';
    } else if (line.includes('syncProxyRules took') && this.#pending === 'end') {
      this.#pending = 'nothing';
      this.#onSynced.resolve(now());
    }
  }
}
