/** The service ports of the benchmark. Every peer has all of them, under the numbers of the servers. */
export const PORTS = {
  /** nginx, a page of a few bytes. */
  http: 8080,
  /** iperf3, TCP and UDP. */
  iperf: 5201,
  /** The echo server of this project. */
  echo: 7007,
  /** sockperf's server. */
  sockperf: 11111,
} as const;

export interface ServicePort {
  readonly name: string;
  readonly protocol: 'TCP' | 'UDP';
  readonly port: number;
  /** The same: the server's. */
  readonly targetPort: number;
}

export const SERVICE_PORTS: readonly ServicePort[] = [
  { name: 'http', protocol: 'TCP', port: PORTS.http, targetPort: PORTS.http },
  { name: 'iperf', protocol: 'TCP', port: PORTS.iperf, targetPort: PORTS.iperf },
  { name: 'iperf-udp', protocol: 'UDP', port: PORTS.iperf, targetPort: PORTS.iperf },
  { name: 'echo', protocol: 'UDP', port: PORTS.echo, targetPort: PORTS.echo },
  { name: 'sockperf', protocol: 'UDP', port: PORTS.sockperf, targetPort: PORTS.sockperf },
];
