import { bad, event, pagesOf, repeatFor, unanswered } from '../crowd.ts';
import type { Abuse } from '../scenario.ts';

const junk = (length: number): Buffer =>
  Buffer.from(Array.from({ length }, () => Math.floor(Math.random() * 256)));

/** What a client may send in place of a request. */
const REQUESTS: readonly (() => string | Buffer)[] = [
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
      const request = REQUESTS[Math.floor(Math.random() * REQUESTS.length)]?.() ?? '';
      const leavesEarly = Math.random() < 0.3;
      const socket = bad(place, (open) => {
        open.write(request, () => leavesEarly && open.destroy());
      });
      socket.resume().setTimeout(300, () => socket.destroy());
      await event(socket, 'close');
    });
    const mistakes = await unanswered(pages);
    return { did: `${done} requests of ${REQUESTS.length} kinds`, mistakes };
  },
};
