/** A node of a made-up shop, with the same traffic each time, for pictures. */
import type { ProblemView } from '../../src/admin/subject.ts';
import type { SceneService, SceneTraffic } from '../../test/support/admin-scene.ts';

type Shape = (second: number) => number;

/** Of its connections: how many a second, bytes of each in both directions, seconds, and what the rate is multiplied with over time. */
type Flow = readonly [
  rate: number,
  request: number,
  response: number,
  lasts: number,
  shape?: Shape,
];

type Recipe = readonly [
  name: string,
  endpoints: number,
  flow?: Flow | undefined,
  more?: Partial<SceneService>,
];

/** It refuses some connections in the end. */
const REFUSING = 'shop/checkout:http';

const RECIPES: readonly Recipe[] = [
  ['shop/storefront:http', 6, [182, 1400, 38_000, 0.4, daily], { nodePort: 30_080 }],
  [REFUSING, 4, [41, 3100, 9200, 1.2, daily], { failing: ['10.244.3.7:8080'] }],
  ['shop/catalog:grpc', 5, [96, 600, 21_000, 2, step]],
  ['shop/cart:http', 3, [58, 900, 2400, 0.3, daily]],
  ['shop/search:http', 4, [64, 500, 14_500, 0.2, bursts]],
  ['shop/images:http', 3, [37, 420, 410_000, 1.5, bursts]],
  ['shop/recommend:grpc', 2, [22, 800, 5200, 4, daily]],
  ['payments/gateway:https', 2, [12, 2600, 4100, 2.5, daily]],
  ['payments/ledger:postgres', 1, [0.4, 64_000, 310_000, 90, step]],
  ['data/sessions:redis', 3, [2.2, 31_000, 88_000, 60, daily]],
  ['data/events:kafka', 3, [0.2, 2_400_000, 120_000, 180, step]],
  ['data/reports:http', 2, [0.5, 700, 1_900_000, 6, bursts]],
  [
    'kube-system/kube-dns:dns',
    2,
    [210, 72, 160, 0.3, daily],
    { protocol: 'UDP', port: 53, address: '10.96.0.10' },
  ],
  ['kube-system/kube-dns:dns-tcp', 2, [0.3, 90, 900, 0.2], { port: 53, address: '10.96.0.10' }],
  ['kube-system/metrics-server:https', 1, [0.5, 1200, 46_000, 1]],
  ['media/transcoder:http', 0],
  ['media/thumbnails:http', 3, [9, 88_000, 12_000, 0.8, bursts]],
  ['media/archive:sftp', 1, undefined, { address: '203.0.113.20', port: 22, broken: true }],
  ['ops/grafana:http', 1, [1.6, 900, 61_000, 8]],
  ['ops/loki:http', 2, [14, 26_000, 300, 0.4, daily]],
  ['ops/alertmanager:http', 2, [0.2, 900, 700, 1]],
  ['ops/webhooks:http', 2],
  ['shop/mailer:smtp', 2, [0.6, 21_000, 800, 3]],
  ['shop/legacy-orders:http', 2, [1.1, 800, 2100, 25, fading]],
];

/** Connections to it that are refused each second. */
function refusals(second: number): number {
  return second > 205 ? 3 + (second % 5) : 0;
}

/** A slow wave. */
function daily(second: number): number {
  return (
    1 + 0.22 * Math.sin(second / 47) + 0.06 * Math.sin(second / 5.3) + 0.03 * Math.sin(second * 1.7)
  );
}

function step(second: number): number {
  return (second > 140 ? 1.6 : 1) + 0.07 * Math.sin(second / 6) + 0.04 * Math.sin(second * 1.3);
}

function bursts(second: number): number {
  const phase = second % 62;
  return 0.45 + (phase < 19 ? 1.5 * Math.sin((phase / 19) * Math.PI) : 0.12 * Math.sin(second / 3));
}

/** What becomes of a drained service: no new connections, and those that are open end. */
function fading(second: number): number {
  return second < 240 ? 1 + 0.1 * Math.sin(second / 4) : 0;
}

export const DRAINED = 'shop/legacy-orders';

export const PROBLEMS: readonly ProblemView[] = [
  {
    code: 'KPNG_LISTEN_ADDRESS_NOT_AVAILABLE',
    message:
      'cannot listen on 203.0.113.20:22/TCP for media/archive:sftp: the host does not have the address; ' +
      'add it to an interface (ip addr add 203.0.113.20/32 dev lo), let the program do so (--portal-interface), ' +
      'or use another --portal; retrying',
    servicePort: 'media/archive:sftp',
    count: 1,
  },
];

export function sceneServices(): SceneService[] {
  return RECIPES.map(serviceOf);
}

function serviceOf([name, count, flow, more]: Recipe, index: number): SceneService {
  const port = more?.port ?? 80;
  const backend = port === 80 ? 8080 : port;
  const [failing] = more?.failing ?? [];
  const endpoints = Array.from({ length: count }, (_, each) => {
    const address = `10.244.${(index * 2 + each) % 6}.${((index * 3 + each * 2) % 250) + 3}`;
    return each === 2 && failing !== undefined ? failing : `${address}:${backend}`;
  });
  return {
    name,
    address: `10.96.${10 + index * 3}.${20 + index * 7}`,
    port,
    endpoints,
    ...more,
    ...(flow !== undefined && { traffic: trafficOf(flow, name === REFUSING) }),
  };
}

function trafficOf(
  [rate, request, response, lasts, shape = () => 1]: Flow,
  refuses: boolean,
): (second: number) => Partial<SceneTraffic> {
  let owed = 0;
  let open = rate * lasts;
  return (second) => {
    const now = rate * shape(second);
    owed += now;
    const connections = Math.floor(owed);
    owed -= connections;
    open += (now * lasts - open) / Math.max(lasts, 1);
    const busy = Math.max(now, open / lasts);
    return {
      connections,
      bytesIn: busy * request,
      bytesOut: busy * response,
      active: open,
      refused: refuses ? refusals(second) : 0,
    };
  };
}
