import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { connect, type ClientHttp2Session } from 'node:http2';
import { connect as connectTcp } from 'node:net';
import { setTimeout as wait } from 'node:timers/promises';
import { WatchReq } from '../../../src/api/generated/localv1/api.ts';
import { freePorts } from '../../../examples/support/ports.ts';
import { bad } from '../crowd.ts';
import type { Abuse } from '../scenario.ts';

/** Of the program that runs. */
let port = 0;

function session(localAddress: string): ClientHttp2Session {
  const opened = connect(`http://127.0.0.1:${port}`, {
    createConnection: () => connectTcp({ port, host: '127.0.0.1', localAddress }),
  });
  opened.on('error', () => undefined);
  return opened;
}

/** A watch with one request; resolves with whether the state has come within a minute. */
async function watch(from: ClientHttp2Session): Promise<boolean> {
  const stream = from.request({
    ':method': 'POST',
    ':path': '/localv1.Sets/Watch',
    'content-type': 'application/grpc',
    te: 'trailers',
  });
  stream.on('error', () => undefined);
  const message = Buffer.from(WatchReq.encode({ nodeName: 'loopback' }).finish());
  const head = Buffer.alloc(5);
  head.writeUInt32BE(message.length, 1);
  stream.write(Buffer.concat([head, message]));
  const signal = AbortSignal.timeout(60_000);
  return once(stream, 'data', { signal }).then(
    () => true,
    () => false,
  );
}

/** One peer takes all that it can get; another one has to be served. */
export const apiClients: Abuse = {
  name: 'api-clients',
  title: 'to-api: thousands of watches from one peer, junk frames; another peer watches',
  engines: ['node'],
  memoryMiB: 700,
  async stage() {
    [port = 0] = await freePorts(1);
    return {
      sink: ['to-api', `--listen=tcp://127.0.0.1:${port}`],
      args: ['--max-watchers=1000'],
      carries: false,
    };
  },
  async run(_, size) {
    const mistakes: string[] = [];
    const streams = size.pick(100, 1000);
    const hostile = Array.from({ length: 12 }, () => session('127.0.0.9'));
    const watches = hostile.map((each) =>
      Promise.all(Array.from({ length: streams }, () => watch(each))),
    );
    await wait(size.pick(500, 5000));
    const junk = Array.from({ length: 50 }, (_, n) =>
      bad({ host: '127.0.0.1', port }, (socket) => {
        if (n % 2 === 0) socket.write('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n');
        socket.write(randomBytes(20_000));
      }),
    );
    const rounds = size.pick(2, 10);
    for (let round = 0; round < rounds; round += 1) {
      const good = session('127.0.0.1');
      if (!(await watch(good))) mistakes.push('another peer did not get the state within a minute');
      good.destroy();
      await wait(size.pick(50, 500));
    }
    for (const each of [...hostile, ...junk]) each.destroy();
    await Promise.all(watches);
    return { did: `12 connections with ${streams} watches, 50 with junk`, mistakes };
  },
};
