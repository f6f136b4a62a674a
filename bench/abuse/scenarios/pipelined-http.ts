import { setTimeout as wait } from 'node:timers/promises';
import { bad, placeOf } from '../crowd.ts';
import type { Abuse } from '../scenario.ts';

const REQUESTS = 1900;

/** The answers are large with many services, and the client does not read them. */
export const pipelinedHttp: Abuse = {
  name: 'pipelined-http',
  title: 'HTTP: pipelined requests whose answers are never read, on every port',
  memoryMiB: 250,
  async run(stage, size) {
    const services = size.pick(300, 3000);
    stage.writeState(
      ...Array.from({ length: services }, (_, n) => ({
        namespace: 'many',
        name: `service-${n}`,
        clusterIP: `127.79.${Math.floor(n / 250)}.${(n % 250) + 1}`,
        ports: [{ name: 'http', protocol: 'TCP' as const, port: 8080, targetPort: 8080 }],
        endpoints: [{ name: 'pod', address: '127.0.0.1' }],
      })),
    );
    const last = services - 1;
    await stage.opens(`127.79.${Math.floor(last / 250)}.${(last % 250) + 1}`, 8080);
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
