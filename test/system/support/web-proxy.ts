/** The program on the node of a test network, with one service from a state file. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Test } from 'tap';
import { Cli } from '../../support/cli.ts';
import { shortDir } from '../../support/short-dir.ts';
import type { Lab } from './lab.ts';
import { ADDRESSES, NODE } from './network.ts';

/** Where the service is. */
export const PLACES = ['10.96.0.10:80', '[fd96::10]:80', `${NODE.v4}:30080`, `[${NODE.v6}]:30080`];

/** A service with a cluster IP of each family and a node port, and its endpoints. */
export function stateOf(...pods: ('pod-a' | 'pod-b')[]): string {
  const endpoints = pods.map((pod) => {
    const { v4, v6 } = ADDRESSES[pod];
    return `  - endpoint: {ips: {v4: [${v4}], v6: ['${v6}']}}\n    topology: {node: n1}\n`;
  });
  return `nodes: [{name: n1}]
services:
- service:
    name: web
    type: NodePort
    ips: {clusterips: {v4: [10.96.0.10], v6: ['fd96::10']}}
    ports:
    - {name: http, protocol: 1, port: 80, nodeport: 30080, targetport: 8080}
    - {name: dns, protocol: 2, port: 53, targetport: 8080}
  endpoints:
${endpoints.join('')}`;
}

/** Runs the program on the node, with further words before it such as those of setpriv. */
export function onNode(
  t: Test,
  here: Lab,
  args: readonly string[],
  before: readonly string[] = [],
): Cli {
  const inside = ['ip', 'netns', 'exec', here.network.namespace('node'), ...before];
  const cli = new Cli(args, undefined, inside);
  t.teardown(async () => {
    cli.kill('SIGKILL');
    await cli.exited;
  });
  return cli;
}

/** Proxies the service, until the test ends. */
export const proxy = proxyOf(stateOf('pod-a', 'pod-b'));

/** Starts the program with a state file. */
export function proxyOf(state: string, node = 'n1') {
  return (t: Test, here: Lab, flags: string, before: readonly string[] = []): Cli => {
    const path = join(shortDir(t), 'state.yaml');
    writeFileSync(path, state);
    const words = `file --input ${path} to-local to-userspace --node-name ${node} ${flags}`.split(
      ' ',
    );
    const servers = ['--metrics-bind-address=127.0.0.1:0', '--healthz-bind-address=127.0.0.1:0'];
    return onNode(t, here, flags.includes('--dry-run') ? words : [...words, ...servers], before);
  };
}
