/**
 * The responses of the admin API, as plain data. docs/reference/status.md describes every field; fields may be added,
 * existing ones keep their meaning.
 */
export type { ServiceState } from '../observe/service-state.ts';
export type { Traffic } from '../observe/service-summary.ts';
export type { Verdict } from '../observe/verdict.ts';
export type { DrainOutcome, StopOutcome } from './changing.ts';
export type { EndpointState, EndpointView, ListenerView, ServiceDetails } from './details.ts';
export type { HistoryView } from './sampler.ts';
export type { ServiceRow, ServicesView } from './services.ts';
export type { ConnectionView, ConnectionsView } from './standard.ts';
export type { ProxyView, SourceView, StatusView } from './status.ts';
