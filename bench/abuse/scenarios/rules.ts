/** Scenarios with packet rules, each in a network namespace of its own. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as wait } from 'node:timers/promises';
import { renderState, type ServiceDescription } from '../../../examples/support/state-file.ts';
import { until } from '../../../examples/support/until.ts';
import { ENDPOINT_ADDRESSES } from '../../portals/network.ts';
import { startScript } from '../../support/dialogue.ts';
import type { InsideRequest } from '../inside.ts';
import { onFullDisk } from './files.ts';
import type { Abuse } from '../scenario.ts';
import type { Stage } from '../stage.ts';

const NEEDS = ['root', 'ip', 'nft', 'unshare'];
const PORT = 8080;
const ENDPOINT = ENDPOINT_ADDRESSES[1];

/** Asks the program inside of the network of the scenario that runs. */
let ask: (request: InsideRequest) => Promise<string>;

function startInside(stage: Stage): void {
  const script = join(import.meta.dirname, '../inside.ts');
  const program = startScript(script, {}, stage.place.inside);
  stage.teardown(() => program.kill());
  ask = (request) => program.ask<string>(request);
}

function service(number: number, protocol: 'TCP' | 'UDP', addresses: string[]): ServiceDescription {
  return {
    namespace: 'rules',
    name: `service-${number}`,
    clusterIP: `10.96.1.${number}`,
    ports: [{ name: 'p', protocol, port: 80, targetPort: PORT }],
    endpoints: addresses.map((address) => ({ name: address, address })),
  };
}

/** Rules must never redirect to a port of another process. */
export const heldPorts: Abuse = {
  name: 'held-ports',
  engines: ['linux'],
  title: 'Ports of --port-range that another program holds',
  needs: NEEDS,
  async stage(stage) {
    startInside(stage);
    const ports = Array.from({ length: 10 }, (_, n) => 40_000 + n * 3);
    await ask({ kind: 'serve', address: '0.0.0.0', ports, word: 'foreign' });
    await ask({ kind: 'serve', address: ENDPOINT, ports: [PORT], word: 'right' });
    return { args: ['--portal=nftables', '--port-range=40000-40099'] };
  },
  async run(stage, size) {
    const services = Array.from({ length: 40 }, (_, n) => service(n + 1, 'TCP', [ENDPOINT]));
    stage.writeState(...services);
    const answers = async (host: string): Promise<string> => ask({ kind: 'ask', host, port: 80 });
    const answered = new Set(['right', 'foreign']);
    for (const { clusterIP } of services) {
      const isServed = async () => answered.has(await answers(clusterIP)) || undefined;
      await until(`${clusterIP} is served`, isServed);
    }
    // A port that was taken is retried for a while.
    await wait(size.pick(500, 3000));
    const mistakes: string[] = [];
    const rounds = size.pick(1, 5);
    for (let round = 0; round < rounds; round += 1) {
      for (const { clusterIP } of services) {
        const answer = await answers(clusterIP);
        if (answer !== 'right') mistakes.push(`${clusterIP} answers ${answer}`);
      }
    }
    return { did: `10 of 100 ports held; 40 services asked ${rounds} times`, mistakes };
  },
};

/** A service may bring as many as fit into an object of the API. */
export const sourceRanges: Abuse = {
  name: 'source-ranges',
  engines: ['node'],
  title: 'One service with very many loadBalancerSourceRanges',
  needs: NEEDS,
  memoryMiB: 500,
  async stage(stage) {
    startInside(stage);
    await ask({ kind: 'serve', address: ENDPOINT, ports: [PORT], word: 'right' });
    return { args: ['--portal=nftables'] };
  },
  async run(stage, size) {
    const count = size.pick(5000, 50_000);
    const ranges = Array.from(
      { length: count },
      (_, n) => `10.${n >> 14}.${(n >> 6) & 255}.${(n & 63) * 4}/30`,
    );
    const many = {
      service: {
        namespace: 'rules',
        name: 'many',
        type: 'LoadBalancer',
        ips: { clusterips: { v4: ['10.96.2.1'] }, loadbalancerips: { v4: ['198.51.100.1'] } },
        ports: [{ name: 'p', protocol: 1, port: 80, targetport: PORT }],
        ipfilters: [{ sourceranges: ranges }],
      },
      endpoints: [],
    };
    const state = renderState([stage.controlService(), service(1, 'TCP', [ENDPOINT])]);
    const begun = performance.now();
    writeFileSync(stage.input, `${state}  - ${JSON.stringify(many)}\n`);
    const isServed = async () =>
      (await ask({ kind: 'ask', host: '10.96.1.1', port: 80 })) === 'right' ? true : undefined;
    await until('a service beside it is served', isServed);
    const seconds = ((performance.now() - begun) / 1000).toFixed(1);
    await wait(size.pick(300, 3000));
    return { did: `${count} ranges; a service beside it is served after ${seconds} s` };
  },
};

/** Tools get their input all the same. */
export const tmpdirFull: Abuse = {
  name: 'tmpdir-full',
  engines: ['linux'],
  title: 'TMPDIR full while UDP services lose their endpoints and get them back',
  needs: [...NEEDS, 'conntrack'],
  stage: (stage) => ({
    ...onFullDisk(stage.folder),
    args: ['--portal=nftables'],
  }),
  async run(stage, size) {
    const changes = size.pick(8, 40);
    for (let change = 0; change < changes; change += 1) {
      const addresses = change % 2 === 0 ? [ENDPOINT] : [];
      stage.writeState(...Array.from({ length: 11 }, (_, n) => service(n + 1, 'UDP', addresses)));
      await wait(250);
    }
    return { did: `${changes} changes of 11 UDP services` };
  },
};
