/** Clients of the pages and of the admin socket. */
import type { Socket } from 'node:net';
import { setTimeout as wait } from 'node:timers/promises';
import {
  bad,
  crowd,
  destroyAll,
  event,
  pagesOf,
  placeOf,
  repeatFor,
  unanswered,
} from '../crowd.ts';
import { unusedServices } from '../../support/services.ts';
import type { Abuse } from '../scenario.ts';

const REQUESTS = 1900;

/** The answers are large with many services, and the client does not read them. */
export const pipelinedHttp: Abuse = {
  name: 'pipelined-http',
  title: 'HTTP: pipelined requests whose answers are never read, on every port',
  memoryMiB: 250,
  async run(stage, size) {
    const services = size.pick(300, 3000);
    const many = unusedServices(services);
    stage.writeState(...many);
    await stage.opens(many.at(-1)?.clusterIP ?? '', 8080);
    const { metrics, health, status, admin } = stage.pages;
    const places = [
      { place: placeOf(metrics), paths: ['/metrics', '/configz'] },
      { place: placeOf(health), paths: ['/healthz', '/readyz'] },
      { place: placeOf(status), paths: ['/', '/api/v1/services'] },
      { place: { path: admin }, paths: ['/v1/services', '/v1/dump'] },
    ];
    const clients = places.flatMap(({ place, paths }) =>
      paths.map((path) => {
        const request = `GET ${path} HTTP/1.1\r\nHost: a\r\n\r\n`;
        return bad(place, (socket) => socket.pause().write(request.repeat(REQUESTS)));
      }),
    );
    await wait(size.pick(1000, 3000));
    for (const client of clients) client.destroy();
    await wait(size.pick(500, 6000));
    return {
      did: `${clients.length} clients with ${REQUESTS} requests each, ${services} services`,
    };
  },
};

/** Clients that send a byte now and then, or nothing; others have to be answered all the same. */
export const slowHttp: Abuse = {
  name: 'slow-http',
  title: 'HTTP: silent clients and slow headers, on every port',
  engines: ['node'],
  async run(stage, size) {
    const pages = pagesOf(stage.pages);
    const count = size.pick(100, 300);
    const slow: Socket[] = [];
    for (const { place } of pages) slow.push(...(await crowd(count, place)));
    const drip = setInterval(() => {
      for (const [index, socket] of slow.entries()) {
        if (index % 2 === 0 && socket.writable) socket.write('G');
      }
    }, 500);
    const mistakes: string[] = [];
    const rounds = size.pick(2, 8);
    for (let round = 0; round < rounds; round += 1) {
      mistakes.push(...(await unanswered(pages)));
      await wait(size.pick(200, 1000));
    }
    clearInterval(drip);
    destroyAll(slow);
    return {
      did: `${count} such clients on each of 4 ports, ${rounds * pages.length} others`,
      mistakes,
    };
  },
};

const junk = (length: number): Buffer =>
  Buffer.from(Array.from({ length }, () => Math.floor(Math.random() * 256)));

/** What a client may send in place of a request. */
const HOSTILE: readonly (() => string | Buffer)[] = [
  () => junk(4000),
  () => `GET / HTTP/1.1\r\nHost: a\r\nX: ${'y'.repeat(2_000_000)}\r\n\r\n`,
  () => `GET / HTTP/1.1\r\nHost: a\r\n${'X: y\r\n'.repeat(100_000)}\r\n`,
  () => `GET /${'x'.repeat(1_000_000)} HTTP/1.1\r\nHost: a\r\n\r\n`,
  () => `POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 999999999\r\n\r\n${'x'.repeat(200_000)}`,
  () => `POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nfffffff\r\nx`,
  () => `GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n`,
  () => `GET /%00%ff/../../etc/passwd HTTP/1.1\r\nHost: \u0000\r\n\r\n`,
  () => `CONNECT a:1 HTTP/1.1\r\nHost: a\r\nUpgrade: h2c\r\nConnection: upgrade\r\n\r\n`,
];

export const hostileHttp: Abuse = {
  name: 'hostile-http',
  title: 'HTTP: huge headers, junk, endless bodies, early closes, on every port',
  engines: ['node'],
  async run(stage, size) {
    const pages = pagesOf(stage.pages);
    const done = await repeatFor(size.pick(800, 10_000), 8, async (number) => {
      const { place } = pages[number % pages.length] ?? { place: { port: 0 } };
      const request = HOSTILE[Math.floor(Math.random() * HOSTILE.length)]?.() ?? '';
      const leavesEarly = Math.random() < 0.3;
      const socket = bad(place, (open) => {
        open.write(request, () => leavesEarly && open.destroy());
      });
      socket.resume().setTimeout(300, () => socket.destroy());
      await event(socket, 'close');
    });
    const mistakes = await unanswered(pages);
    return { did: `${done} requests of ${HOSTILE.length} kinds`, mistakes };
  },
};
