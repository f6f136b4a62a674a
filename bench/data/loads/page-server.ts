/** Runs in the server's namespace where nginx is not installed: answers every request with a short page. */
import { createServer } from 'node:http';
import { SERVER_ADDRESS } from '../network.ts';
import { PORTS } from '../ports.ts';

const server = createServer({ keepAliveTimeout: 600_000, headersTimeout: 0 }, (_, response) => {
  response.setHeader('Content-Type', 'text/plain');
  response.setHeader('Content-Length', '12');
  response.end('hello world\n');
});
server.listen({ host: SERVER_ADDRESS, port: PORTS.http, backlog: 4096 });
