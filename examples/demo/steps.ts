/** What the tour does and shows. */
import { once } from 'node:events';
import { Agent, request, type IncomingMessage } from 'node:http';
import { SEED } from '../support/endpoint.ts';
import { get } from '../support/http.ts';
import { digestOf, digestOfStream } from '../support/stream-bytes.ts';
import { openUdpClient } from '../support/udp.ts';
import { until } from '../support/until.ts';
import { OVEN, SHOP, TILL, type Scene } from './scene.ts';
import { counts, tally } from './screen.ts';

/** What a step of the tour found. */
interface Finding {
  /** What was seen, with numbers. */
  readonly lines: readonly string[];
  /** Whether it was as it should be. */
  readonly ok: boolean;
  /** One sentence: what this shows. */
  readonly verdict: string;
}

/** One thing that the tour does and shows. */
interface Step {
  readonly title: string;
  run(scene: Scene): Promise<Finding>;
}

/** Name in an answer such as `hello from alder`, or `alder says …`. */
function whoAnswered(answer: string): string {
  return (
    /hello from (\w+)/.exec(answer)?.[1] ?? /^(\w+) says /.exec(answer)?.[1] ?? 'unknown endpoint'
  );
}

/** Whether every one of `parts` got the same, and there are as many as that. */
function isEven(names: readonly string[], parts: number): boolean {
  const numbers = [...tally(names).values()];
  return numbers.length === parts && numbers.every((number) => number === names.length / parts);
}

const spreadTcp: Step = {
  title: 'Connections go round the endpoints of a service',
  async run({ ports }) {
    const names: string[] = [];
    const url = `http://${SHOP}:${ports.http}/`;
    for (let i = 0; i < 30; i += 1) names.push(whoAnswered((await get(url)).body));
    return {
      lines: [`30 requests to ${url}`, counts(names)],
      ok: isEven(names, 3),
      verdict: 'each endpoint answered 10 times',
    };
  },
};

const UDP_CLIENTS = 12;

const spreadUdp: Step = {
  title: 'UDP clients do too, and each stays with its endpoint',
  async run({ ports }) {
    const perClient: string[] = [];
    let changes = 0;
    // Open at the same time: the next one could get the port of one that is closed, and so continue its session.
    const clients = await Promise.all(
      Array.from({ length: UDP_CLIENTS }, () => openUdpClient(SHOP, ports.echo)),
    );
    for (const client of clients) {
      const names: string[] = [];
      for (let n = 0; n < 5; n += 1) names.push(whoAnswered(await client.ask(`hello ${n}`)));
      changes += tally(names).size - 1;
      perClient.push(names[0] ?? '');
    }
    for (const client of clients) client.close();
    return {
      lines: [
        `${UDP_CLIENTS} clients with 5 datagrams each to ${SHOP}:${ports.echo}/UDP`,
        `clients: ${counts(perClient)}`,
      ],
      ok: isEven(perClient, 3) && changes === 0,
      verdict: `each endpoint got 4 clients; changes of endpoint within a client: ${changes}`,
    };
  },
};

const affinity: Step = {
  title: 'With ClientIP affinity a client stays with one endpoint',
  async run({ ports }) {
    const url = `http://${TILL}:${ports.http}/`;
    const clients = ['127.77.9.1', '127.77.9.2', '127.77.9.3'];
    const answers = new Map<string, string[]>(clients.map((client) => [client, []]));
    for (let i = 0; i < 10; i += 1) {
      for (const client of clients) {
        answers.get(client)?.push(whoAnswered((await get(url, { localAddress: client })).body));
      }
    }
    const sets = [...answers.values()];
    const used = new Set(sets.flat());
    return {
      lines: [
        `3 clients with 10 requests each, by turns, to ${url}`,
        ...[...answers].map(([client, names]) => `from ${client}: ${counts(names)}`),
      ],
      ok: sets.every((names) => tally(names).size === 1) && used.size === 3,
      verdict: 'three clients, three endpoints, and none moved',
    };
  },
};

const LENGTH = 256 * 1024 * 1024;

const intact: Step = {
  title: 'What goes through arrives as it was sent',
  async run({ ports }) {
    const path = `/bytes/${LENGTH}`;
    const start = performance.now();
    const outgoing = request({ host: SHOP, port: ports.http, path, agent: false });
    outgoing.end();
    const [response] = (await once(outgoing, 'response')) as [IncomingMessage];
    const got = await digestOfStream(response);
    const seconds = (performance.now() - start) / 1000;
    const wanted = digestOf(SEED, LENGTH);
    return {
      lines: [
        `256 MiB from http://${SHOP}:${ports.http}${path} in ${seconds.toFixed(2)} s`,
        `sent      sha256 ${wanted.slice(0, 32)}…`,
        `received  sha256 ${got.digest.slice(0, 32)}…`,
      ],
      ok: got.length === LENGTH && got.digest === wanted,
      verdict: 'the checksums are equal',
    };
  },
};

const BEFORE = 100;
const AFTER = 300;
const CLIENTS = 8;

const kill: Step = {
  title: 'An endpoint is killed in the middle of the load',
  async run({ ports, endpoints }) {
    const url = `http://${SHOP}:${ports.http}/`;
    let begun = 0;
    let killed = false;
    let failedBefore = 0;
    const failures: string[] = [];
    const names: string[] = [];
    const client = async (): Promise<void> => {
      while (begun < BEFORE + AFTER) {
        begun += 1;
        if (begun === BEFORE + 1) {
          endpoints.birch.kill();
          killed = true;
        }
        const afterKill = killed;
        try {
          const name = whoAnswered((await get(url)).body);
          if (afterKill) names.push(name);
        } catch (error) {
          if (afterKill) failures.push(String(error));
          else failedBefore += 1;
        }
      }
    };
    await Promise.all(Array.from({ length: CLIENTS }, client));
    return {
      lines: [
        `${BEFORE + AFTER} requests, ${CLIENTS} at a time; birch is killed after ${BEFORE}`,
        `cut in flight with birch: ${failedBefore}`,
        `begun after that: ${counts(names)}`,
        ...failures.slice(0, 3),
      ],
      ok: failures.length === 0 && names.length === AFTER && !names.includes('birch'),
      verdict: `${AFTER} new connections after the kill, ${failures.length} failed, though birch is still in the file`,
    };
  },
};

/** Asks on the connection that `agent` keeps; `reused` is false when it had to make a new one. */
async function askOn(agent: Agent, url: string): Promise<{ name: string; reused: boolean }> {
  const outgoing = request(url, { agent });
  outgoing.end();
  const [response] = (await once(outgoing, 'response')) as [IncomingMessage];
  const name = whoAnswered(Buffer.concat(await response.toArray()).toString());
  return { name, reused: outgoing.reusedSocket };
}

/** Resolves with the milliseconds until `url` is answered by `name`, or by any endpoint. */
async function answeredBy(url: string, name?: string): Promise<number> {
  const start = performance.now();
  await until(`${name ?? 'somebody'} answers at ${url}`, async () => {
    const who = whoAnswered((await get(url)).body);
    return name === undefined || who === name ? true : undefined;
  });
  return performance.now() - start;
}

const editEndpoints: Step = {
  title: 'The file is edited: birch goes, dogwood comes',
  async run(scene) {
    const { ports, endpoints } = scene;
    const url = `http://${SHOP}:${ports.http}/`;
    const agent = new Agent({ keepAlive: true, maxSockets: 1 });
    const before = await askOn(agent, url);
    // birch listens again, so only the file keeps clients away from it.
    await Promise.all([endpoints.birch.start(), endpoints.dogwood.start()]);
    scene.write(['alder', 'cedar', 'dogwood']);
    const ms = await answeredBy(url, 'dogwood');
    const names: string[] = [];
    for (let i = 0; i < 30; i += 1) names.push(whoAnswered((await get(url)).body));
    const after = await askOn(agent, url);
    agent.destroy();
    return {
      lines: [
        `dogwood answers ${ms.toFixed(0)} ms after the edit; 30 requests: ${counts(names)}`,
        `a connection that was open all the time: ${before.name} before, ${after.name} after`,
      ],
      ok:
        new Set(names).size === 3 &&
        !names.includes('birch') &&
        after.reused &&
        before.name === after.name,
      verdict: 'picked up without a restart; open connections were left alone',
    };
  },
};

const editServices: Step = {
  title: 'The file is edited again: a new service',
  async run(scene) {
    const url = `http://${OVEN}:${scene.ports.http}/`;
    scene.write(['alder', 'cedar', 'dogwood'], true);
    const ms = await answeredBy(url);
    return {
      lines: [`bakery/oven answers at ${url} ${ms.toFixed(0)} ms after the edit`],
      ok: true,
      verdict: 'listening without a restart',
    };
  },
};

const metrics: Step = {
  title: 'The proxy has counted all this',
  async run({ proxy }) {
    const { body } = await get(proxy.metricsUrl);
    /** The sum of all samples of a metric that have a label. */
    const count = (metric: string, label = ''): number =>
      body
        .split('\n')
        .filter((line) => line.startsWith(`kpng_userspace_${metric}{`) && line.includes(label))
        .reduce((sum, line) => sum + Number(line.split(' ').at(-1)), 0);
    const tcp = count('connections_total', 'protocol="TCP"');
    const udp = count('connections_total', 'protocol="UDP"');
    const retries = count('retries_total');
    const rejected = count('rejected_total');
    const megabytes = Math.round(count('bytes_total') / 1e6);
    return {
      lines: [
        proxy.metricsUrl,
        `TCP connections ${tcp}   UDP clients ${udp}   carried ${megabytes} MB`,
        `attempts retried at another endpoint ${retries}   clients refused ${rejected}`,
      ],
      ok: tcp > 0 && udp === UDP_CLIENTS && retries > 0 && rejected === 0,
      verdict: 'the refusals of birch were met by trying another endpoint; no client was refused',
    };
  },
};

export const STEPS: readonly Step[] = [
  spreadTcp,
  spreadUdp,
  affinity,
  intact,
  kill,
  editEndpoints,
  editServices,
  metrics,
];
