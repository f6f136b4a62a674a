import { once } from 'node:events';
import { createServer, request, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { setTimeout as wait } from 'node:timers/promises';
import * as objects from '../../../test/support/fake-api/objects.ts';
import { FakeApi } from '../../../test/support/fake-api/server.ts';
import type { Abuse } from '../scenario.ts';
import type { Stage, StageOptions } from '../stage.ts';

type Answer = (request: IncomingMessage, response: ServerResponse) => void;

/** In front of a good API server: passes requests on until it is given another answer. */
class Front {
  answer: Answer;
  readonly #api: FakeApi;
  /** Ends what is open with clients. */
  cut: () => void = () => undefined;
  requests = 0;

  constructor(api: FakeApi) {
    this.#api = api;
    this.answer = (asked, response) => this.#pass(asked, response);
  }

  /** From now on every request is answered so, those that are open included. */
  turn(answer: Answer): void {
    this.answer = answer;
    this.#api.cut();
  }

  /** Gives good answers again, with one service more. */
  mend({ target, place }: Stage, host: string): void {
    this.answer = (asked, response) => this.#pass(asked, response);
    addService(this.#api, 'late', host, target.tcp, place.endpointIp);
    this.cut();
  }

  #pass({ url = '/', headers, method }: IncomingMessage, response: ServerResponse): void {
    const asked = request(this.#api.url + url, { method, headers, agent: false }, (answer) => {
      response.writeHead(answer.statusCode ?? 500, answer.headers);
      // A watch is answered before its first event, which may never come.
      response.flushHeaders();
      answer.on('error', () => response.destroy());
      answer.pipe(response);
    });
    asked.on('error', () => response.destroy());
    response.on('close', () => asked.destroy());
    asked.end();
  }
}

/** The longest wait between attempts, then an attempt that was begun before, then lists. Milliseconds. */
const RECOVERS_MS = 45_000;

/** Of the scenario that runs. */
let front: Front;

function addService(
  api: FakeApi,
  name: string,
  host: string,
  tcp: number,
  address: string,
  udp?: number,
): void {
  const ports = [
    { name: 'tcp', protocol: 'TCP', port: tcp },
    ...(udp === undefined ? [] : [{ name: 'udp', protocol: 'UDP', port: udp }]),
  ];
  api.upsert('services', objects.service(`abuse/${name}`, host, { spec: { ports } }));
  api.upsert(
    'endpointslices',
    objects.slice(`abuse/${name}-1`, [objects.endpoint(address)], { ports }),
  );
}

async function throughFront(stage: Stage): Promise<StageOptions> {
  const api = new FakeApi({});
  await api.start();
  stage.teardown(() => api.stop());
  const { host, tcp, udp } = stage.target;
  addService(api, 'control', host, tcp, stage.place.endpointIp, udp);
  api.upsert('nodes', objects.node('loopback'));
  front = new Front(api);
  const server = createServer((asked, response) => {
    front.requests += 1;
    response.on('error', () => undefined);
    front.answer(asked, response);
  });
  front.cut = () => server.closeAllConnections();
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  stage.teardown(() => {
    server.close();
    server.closeAllConnections();
  });
  const { port } = server.address() as AddressInfo;
  return { source: ['kube', `--server=http://127.0.0.1:${port}`] };
}

const LIST_HEAD =
  '{"kind":"List","apiVersion":"v1","metadata":{"resourceVersion":"9"},"items":[],"x":"';
const EVENT_HEAD = '{"type":"MODIFIED","object":{"x":"';

function isOpen(response: ServerResponse): boolean {
  return !response.destroyed && response.writable;
}

/** Sends single bytes, each as a chunk of its own, as fast as they are taken. */
const singleBytes: Answer = (asked, response) => {
  response.writeHead(200, { 'Content-Type': 'application/json' });
  response.write(asked.url?.includes('watch=') === true ? EVENT_HEAD : LIST_HEAD);
  const more = (): void => {
    if (!isOpen(response)) return;
    response.cork();
    for (let count = 0; count < 2000; count += 1) response.write('x');
    response.uncork();
    if (response.writableNeedDrain) response.once('drain', more);
    else setImmediate(more);
  };
  more();
};

/** Pages of a list, each of which promises another one. */
const endlessPages: Answer = (_asked, response) => {
  const items = Array.from({ length: 200 }, () => {
    const name = `s${Math.random()}`;
    return {
      metadata: { name, namespace: 'a', resourceVersion: '1', annotations: { x: 'y'.repeat(500) } },
    };
  });
  const metadata = { resourceVersion: '9', continue: `token-${Math.random()}` };
  response.writeHead(200, { 'Content-Type': 'application/json' });
  response.end(JSON.stringify({ kind: 'List', apiVersion: 'v1', metadata, items }));
};

/** A byte now and then: never so late that it counts as silence. */
const dripping: Answer = (_asked, response) => {
  response.writeHead(200, { 'Content-Type': 'application/json' });
  response.write(LIST_HEAD);
  const timer = setInterval(
    () => (isOpen(response) ? response.write('x') : clearInterval(timer)),
    100,
  );
};

/** Informational answers without end before the real one. */
const informational: Answer = (_asked, response) => {
  const socket = response.socket;
  const line = 'HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n'.repeat(500);
  const more = (): void => {
    if (socket === null || socket.destroyed) return;
    if (socket.write(line)) setImmediate(more);
    else socket.once('drain', more);
  };
  more();
};

function hostile(name: string, title: string, answer: Answer): Abuse {
  return {
    name: `kube-${name}`,
    short: false,
    engines: ['node'],
    title: `Kubernetes API: ${title}`,
    memoryMiB: 600,
    stage: throughFront,
    async run(stage, size) {
      front.turn(answer);
      const before = front.requests;
      const seconds = size.pick(1, 10);
      await wait(seconds * 1000);
      const requests = front.requests - before;
      const late = '127.78.5.200';
      front.mend(stage, late);
      const mistakes: string[] = [];
      if (size.isLong) {
        await stage.opens(late, stage.target.tcp, RECOVERS_MS).catch((error: unknown) => {
          mistakes.push(`a service of the repaired server: ${String(error)}`);
        });
      }
      return { did: `${requests} requests answered so in ${seconds} s`, mistakes };
    },
  };
}

export const kubeSingleBytes = hostile(
  'single-bytes',
  'answers in chunks of one byte',
  singleBytes,
);
export const kubeEndlessPages = hostile('endless-pages', 'lists without a last page', endlessPages);
export const kubeDripping = hostile('dripping', 'a byte every 100 ms', dripping);
export const kubeInformational = hostile('informational', 'a flood of 1xx answers', informational);
