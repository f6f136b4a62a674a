import type { HttpServer } from './http-server.ts';

/** Several servers as one. */
export function allServers(servers: readonly HttpServer[]): HttpServer {
  const all = async (work: (server: HttpServer) => Promise<void>): Promise<void> => {
    await Promise.all(servers.map(work));
  };
  return {
    get ports() {
      return servers.flatMap(({ ports }) => ports);
    },
    leave: () => all((server) => server.leave()),
    close: () => all((server) => server.close()),
  };
}
