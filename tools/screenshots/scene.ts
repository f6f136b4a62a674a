/** A node of a made-up shop, with the same traffic each time, for pictures. */
import type { ProblemView } from '../../src/admin/views.ts';
import type { SceneService, SceneTraffic } from '../../test/support/admin-scene.ts';

interface Recipe {
  readonly name: string;
  readonly endpoints: number;
  /** Connections a second. */
  readonly rate?: number;
  /** Bytes of a connection, both ways. */
  readonly request?: number;
  readonly response?: number;
  /** Seconds that a connection lasts. */
  readonly lasts?: number;
  readonly more?: Partial<SceneService>;
  /** Connections that are refused each second. */
  readonly refused?: (second: number) => number;
  /** What the rate is multiplied with over time. */
  readonly shape?: (second: number) => number;
}

const RECIPES: readonly Recipe[] = [
  {
    name: 'shop/storefront:http',
    endpoints: 6,
    rate: 182,
    request: 1400,
    response: 38_000,
    lasts: 0.4,
    shape: daily,
    more: { nodePort: 30_080 },
  },
  {
    name: 'shop/checkout:http',
    endpoints: 4,
    rate: 41,
    request: 3100,
    response: 9200,
    lasts: 1.2,
    shape: daily,
    refused: (second) => (second > 205 ? 3 + (second % 5) : 0),
    more: { failing: ['10.244.3.7:8080'] },
  },
  {
    name: 'shop/catalog:grpc',
    endpoints: 5,
    rate: 96,
    request: 600,
    response: 21_000,
    lasts: 2,
    shape: step,
  },
  {
    name: 'shop/cart:http',
    endpoints: 3,
    rate: 58,
    request: 900,
    response: 2400,
    lasts: 0.3,
    shape: daily,
  },
  {
    name: 'shop/search:http',
    endpoints: 4,
    rate: 64,
    request: 500,
    response: 14_500,
    lasts: 0.2,
    shape: bursts,
  },
  {
    name: 'shop/images:http',
    endpoints: 3,
    rate: 37,
    request: 420,
    response: 410_000,
    lasts: 1.5,
    shape: bursts,
  },
  {
    name: 'shop/recommend:grpc',
    endpoints: 2,
    rate: 22,
    request: 800,
    response: 5200,
    lasts: 4,
    shape: daily,
  },
  {
    name: 'payments/gateway:https',
    endpoints: 2,
    rate: 12,
    request: 2600,
    response: 4100,
    lasts: 2.5,
    shape: daily,
  },
  {
    name: 'payments/ledger:postgres',
    endpoints: 1,
    rate: 0.4,
    request: 64_000,
    response: 310_000,
    lasts: 90,
    shape: step,
  },
  {
    name: 'data/sessions:redis',
    endpoints: 3,
    rate: 2.2,
    request: 31_000,
    response: 88_000,
    lasts: 60,
    shape: daily,
  },
  {
    name: 'data/events:kafka',
    endpoints: 3,
    rate: 0.2,
    request: 2_400_000,
    response: 120_000,
    lasts: 180,
    shape: step,
  },
  {
    name: 'data/reports:http',
    endpoints: 2,
    rate: 0.5,
    request: 700,
    response: 1_900_000,
    lasts: 6,
    shape: bursts,
  },
  {
    name: 'kube-system/kube-dns:dns',
    endpoints: 2,
    rate: 210,
    request: 72,
    response: 160,
    lasts: 0.3,
    shape: daily,
    more: { protocol: 'UDP', port: 53, address: '10.96.0.10' },
  },
  {
    name: 'kube-system/kube-dns:dns-tcp',
    endpoints: 2,
    rate: 0.3,
    request: 90,
    response: 900,
    lasts: 0.2,
    more: { port: 53, address: '10.96.0.10' },
  },
  {
    name: 'kube-system/metrics-server:https',
    endpoints: 1,
    rate: 0.5,
    request: 1200,
    response: 46_000,
    lasts: 1,
  },
  { name: 'media/transcoder:http', endpoints: 0, more: {} },
  {
    name: 'media/thumbnails:http',
    endpoints: 3,
    rate: 9,
    request: 88_000,
    response: 12_000,
    lasts: 0.8,
    shape: bursts,
  },
  {
    name: 'media/archive:sftp',
    endpoints: 1,
    more: { address: '203.0.113.20', port: 22, broken: true },
  },
  { name: 'ops/grafana:http', endpoints: 1, rate: 1.6, request: 900, response: 61_000, lasts: 8 },
  {
    name: 'ops/loki:http',
    endpoints: 2,
    rate: 14,
    request: 26_000,
    response: 300,
    lasts: 0.4,
    shape: daily,
  },
  { name: 'ops/alertmanager:http', endpoints: 2, rate: 0.2, request: 900, response: 700, lasts: 1 },
  { name: 'ops/webhooks:http', endpoints: 2 },
  { name: 'shop/mailer:smtp', endpoints: 2, rate: 0.6, request: 21_000, response: 800, lasts: 3 },
  {
    name: 'shop/legacy-orders:http',
    endpoints: 2,
    rate: 1.1,
    request: 800,
    response: 2100,
    lasts: 25,
    shape: fading,
  },
];

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

function serviceOf(recipe: Recipe, index: number): SceneService {
  const traffic = trafficOf(recipe);
  const port = recipe.more?.port ?? 80;
  const backend = port === 80 ? 8080 : port;
  const [failing] = recipe.more?.failing ?? [];
  const endpoints = Array.from({ length: recipe.endpoints }, (_, each) => {
    const address = `10.244.${(index * 2 + each) % 6}.${((index * 3 + each * 2) % 250) + 3}`;
    return each === 2 && failing !== undefined ? failing : `${address}:${backend}`;
  });
  return {
    name: recipe.name,
    address: `10.96.${10 + index * 3}.${20 + index * 7}`,
    port,
    endpoints,
    ...recipe.more,
    ...(traffic !== undefined && { traffic }),
  };
}

function trafficOf(recipe: Recipe): ((second: number) => Partial<SceneTraffic>) | undefined {
  const { rate, request = 0, response = 0, lasts = 1, shape = () => 1, refused } = recipe;
  if (rate === undefined) return undefined;
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
      refused: refused?.(second) ?? 0,
    };
  };
}
