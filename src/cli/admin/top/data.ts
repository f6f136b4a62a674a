import type { ServiceDetails, ServicesView, StatusView } from '../../../admin/views.ts';
import { KpngError } from '../../../errors.ts';
import type { TopState } from './state.ts';

/** What a screen of `top` shows. */
export interface TopData {
  readonly status: StatusView;
  readonly services: ServicesView;
  /** Of the service port that is open, if there is one. */
  readonly details: ServiceDetails | undefined;
}

/** Asks the running proxy: an operation, with what it is given. */
export type AskProxy = (operation: string, input?: Record<string, string>) => Promise<unknown>;

const NOTHING: ServicesView = {
  total: 0,
  matched: 0,
  offset: 0,
  rows: [],
  states: { ok: 0, degraded: 0, down: 0, 'no-endpoints': 0, drained: 0, removed: 0 },
};

/** Service ports that are asked for: more than any terminal has lines. */
const ROWS = '300';

export async function askTop(ask: AskProxy, state: TopState): Promise<TopData> {
  const { sort, reverse, filter, search, open } = state;
  const order = reverse ? 'reverse' : 'normal';
  const input = { sort, order, state: filter, search, limit: ROWS };
  const [status, services, details] = await Promise.all([
    ask('status'),
    orNothing(ask('services', input)),
    open === undefined ? undefined : orNothing(ask('service', { name: open })),
  ]);
  return {
    status: status as StatusView,
    services: (services as ServicesView | undefined) ?? NOTHING,
    details: (details as { services: ServiceDetails[] } | undefined)?.services[0],
  };
}

/** What is gone by now, or not there in this process, is no reason to stop. */
async function orNothing(answer: Promise<unknown>): Promise<unknown> {
  try {
    return await answer;
  } catch (error) {
    if (error instanceof KpngError && error.code === 'KPNG_ADMIN_REFUSED') return undefined;
    throw error;
  }
}
