/** What runs in the server's namespace: nginx, iperf3, sockperf, and an echo of this project. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { tempFolder } from '../../examples/support/temp-folder.ts';
import { isInstalled } from '../support/tools.ts';
import { SERVER_ADDRESS, type DataNetwork } from './network.ts';
import { PORTS } from './ports.ts';
import { startProgram, type Program } from './program.ts';

export interface Servers {
  /** What it lacks, and what stands in for it. */
  readonly notes: readonly string[];
  close(): Promise<void>;
}

/** One process with one worker, which answers at once and writes no log. */
function nginxConfig(folder: string): string {
  return `daemon off;
master_process off;
worker_rlimit_nofile 20000;
pid ${folder}/pid;
error_log stderr error;
events { worker_connections 12000; }
http {
  access_log off;
  keepalive_requests 1000000000;
  keepalive_timeout 600s;
  client_header_timeout 600s;
  server {
    listen ${SERVER_ADDRESS}:${PORTS.http} backlog=4096;
    location / { default_type text/plain; return 200 "hello world\\n"; }
  }
}
`;
}

/** Starts those whose programs are installed; the loads report what that leaves out. */
export function startServers(network: DataNetwork): Servers {
  const folder = tempFolder('bench-servers');
  const config = join(folder.path, 'nginx.conf');
  writeFileSync(config, nginxConfig(folder.path));
  const programs: Program[] = [];
  const start = (...words: string[]): void => {
    programs.push(startProgram(network.server(...words)));
  };
  start(process.execPath, join(import.meta.dirname, 'loads/echo-server.ts'));
  const notes: string[] = [];
  if (isInstalled('nginx')) {
    start('nginx', '-p', folder.path, '-c', config, '-e', 'stderr');
  } else {
    start(process.execPath, join(import.meta.dirname, 'loads/page-server.ts'));
    notes.push('nginx is not installed: Node answers the requests, and is slower');
  }
  if (isInstalled('iperf3')) {
    // Bound, since it answers datagrams from the address of the wire otherwise.
    start('iperf3', '-s', '-B', SERVER_ADDRESS, '-p', String(PORTS.iperf), '--rcv-timeout', '3000');
  }
  if (isInstalled('sockperf')) {
    start('sockperf', 'server', '-i', SERVER_ADDRESS, '-p', String(PORTS.sockperf));
  }
  return {
    notes,
    async close() {
      for (const program of programs) await program.kill();
      folder.remove();
    },
  };
}
