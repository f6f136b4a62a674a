/** What runs in the server's namespace: nginx, iperf3, sockperf, and an echo of this project. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { tempFolder } from '../../examples/support/temp-folder.ts';
import { BACKEND, type BackendSettings } from '../support/backend.ts';
import { startScript } from '../support/dialogue.ts';
import { isInstalled } from '../support/tools.ts';
import { SERVER_ADDRESS, type DataNetwork } from './network.ts';
import { PORTS } from './ports.ts';
import { startProgram } from './program.ts';

interface Servers {
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
  const { http, echo, iperf, sockperf } = PORTS;
  const hasNginx = isInstalled('nginx');
  const own: BackendSettings = {
    host: SERVER_ADDRESS,
    ports: hasNginx ? { echo } : { echo, http },
  };
  const lines = [
    `nginx -p ${folder.path} -c ${config} -e stderr`,
    // Bound, since it answers datagrams from the address of the wire otherwise.
    `iperf3 -s -B ${SERVER_ADDRESS} -p ${iperf} --rcv-timeout 3000`,
    `sockperf server -i ${SERVER_ADDRESS} -p ${sockperf}`,
  ].map((line) => line.split(' '));
  const programs = [
    startScript(BACKEND, own, network.server()),
    ...lines
      .filter(([command = '']) => isInstalled(command))
      .map((words) => startProgram(network.server(...words))),
  ];
  return {
    notes: hasNginx ? [] : ['nginx is not installed: Node answers the requests, and is slower'],
    async close() {
      for (const program of programs) await program.kill();
      folder.remove();
    },
  };
}
