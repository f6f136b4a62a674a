/** A program of the soak test: the Kubernetes API, with events on request. */
import { setTimeout as wait } from 'node:timers/promises';
import { FakeApi } from '../../test/support/fake-api/server.ts';
import { answerRequests, settings } from '../support/dialogue.ts';
import { burst, settle } from './churn.ts';

type SoakApiRequest =
  | { readonly do: 'url' }
  /** Answers with a `Burst`. */
  | { readonly do: 'burst'; readonly round: number; readonly events: number };

/** What `burst` changes. */
const RESOURCES = ['services', 'endpointslices', 'nodes'] as const;

const { services } = settings() as { readonly services: number };
const api = new FakeApi({});
settle(api, services);
await api.start();

answerRequests(async (request: SoakApiRequest) => {
  if (request.do === 'url') return api.url;
  // What happens before a watch is open comes with its list.
  while (RESOURCES.some((resource) => api.watches(resource).length === 0)) await wait(1);
  return burst(api, request.round, request.events, services);
});
