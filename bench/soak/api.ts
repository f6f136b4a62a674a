/** A program of the soak test: the Kubernetes API, in which things happen when it is told so. */
import { FakeApi } from '../../test/support/fake-api/server.ts';
import { answerRequests } from '../support/dialogue.ts';
import { settings } from '../support/worker.ts';
import { burst, settle } from './churn.ts';

export interface ApiSettings {
  readonly services: number;
}

export type SoakApiRequest =
  | { readonly do: 'url' }
  /** Answers with the address that the last event tells. */
  | { readonly do: 'burst'; readonly round: number; readonly events: number };

const { services } = settings() as ApiSettings;
const api = new FakeApi({});
settle(api, services);
await api.start();

answerRequests((request: SoakApiRequest) => {
  if (request.do === 'url') return api.url;
  return burst(api, request.round, request.events, services);
});
