import type { z } from 'zod';
import type { Action } from '../../accounts/allow.ts';
import type { Principal } from '../../accounts/principal.ts';
import type { Arguments } from '../../api/operations.ts';
import type { PublicUrls } from '../../http/urls.ts';
import type { Form } from './form.ts';
import type { Html } from './html.ts';

/** The operations of `/v1`, as the visitor of a page. */
interface VisitorApi {
  /** See `Api.call`. */
  call<Answer extends z.ZodType>(id: string, answer: Answer, args?: Arguments): Promise<z.input<Answer>>;
  /** See `Api.do`. */
  do(id: string, args?: Arguments): Promise<void>;
}

/** A multipart form that is arriving. */
interface ReceivingCall extends PageCall {
  /** Gives the form to an operation; see `Api.receive`. */
  receive<Answer extends z.ZodType>(
    id: string,
    answer: Answer,
    params?: Readonly<Record<string, string>>,
  ): Promise<z.input<Answer>>;
}

/** A request for a page. */
export interface PageCall {
  readonly principal: Principal;
  /** The ID of the session; undefined for an anonymous visitor. */
  readonly session: string | undefined;
  readonly params: Readonly<Record<string, string>>;
  /** The first value of each query parameter. */
  readonly query: Readonly<Record<string, string>>;
  /** All values of a query parameter, such as the boxes that are checked in a form. */
  values(name: string): readonly string[];
  /** A form of this page that was refused, with its values and errors, if the address names one. */
  readonly refused: Form | undefined;
  readonly urls: PublicUrls;
  readonly api: VisitorApi;
  /** Milliseconds since 1970. */
  readonly now: number;
}

/** A form that was sent. */
export interface FormCall extends PageCall {
  /** All values of a field, in order. */
  readonly form: URLSearchParams;
}

/** The content of a page. */
export interface PageView {
  title: string;
  body: Html;
  /** The path of `/v1` that has the same data. */
  json?: string;
  /** 200 by default. */
  status?: number;
}

/** Where a form leads after success. `done` is the key of a notice in layout.ts, which the page there shows once. */
export interface Redirect {
  to: string;
  done?: string;
}

/** A form that was refused. Its page, or the one at `at`, shows it again as `PageCall.refused`, at an address of its own. */
export interface RefusedForm {
  refused: Form;
  at?: string;
}

/** One page. What a visitor may do follows from `action` and from the operations of `/v1` that the page calls. */
export interface Page {
  /** Below `/console`, in Express syntax. */
  path: string;
  /** The entry of the navigation that it belongs to; undefined if it belongs to none. */
  section: Section | undefined;
  action: Action;
  /** Whether it can show a secret, such as one in an address. It is never compressed then. */
  hasSecrets?: true;
  show(call: PageCall): Promise<PageView>;
  /** Handles the form that is sent to the page's address. A `PageView` shows what no other page can, such as a new secret. */
  send?(call: FormCall): Promise<PageView | Redirect | RefusedForm>;
  /** As `send`, for a form with files, which are read while they arrive. A page has only one of both. */
  receive?(call: ReceivingCall): Promise<PageView | Redirect | RefusedForm>;
}

export type Section = (typeof sections)[number]['key'];

/** A page of the navigation. A visitor who may do one of `actions` sees it. */
interface Entry {
  title: string;
  path: string;
  actions: readonly Action[];
}

/** The navigation: sections, and the further pages that a section shows while it is open. */
export const sections = [
  { key: 'overview', title: 'Overview', path: '/console/', actions: ['read'] },
  {
    key: 'packages',
    title: 'Packages',
    path: '/console/packages',
    actions: ['read'],
    pages: [
      { title: 'Vulnerable and deprecated', path: '/console/risks', actions: ['read'] },
      { title: 'Upload', path: '/console/upload', actions: ['write'] },
      { title: 'Imports', path: '/console/imports', actions: ['admin'] },
      { title: 'Deleted', path: '/console/deleted', actions: ['delete'] },
      { title: 'Freeze and keep', path: '/console/permanence', actions: ['account'] },
      { title: 'Claims', path: '/console/claims', actions: ['admin'] },
      { title: 'Policy', path: '/console/policy', actions: ['admin', 'operate'] },
      { title: 'Waivers', path: '/console/waivers', actions: ['account'] },
      { title: 'Promotions', path: '/console/promotions', actions: ['account'] },
    ],
  },
  {
    key: 'images',
    title: 'Images',
    path: '/console/images',
    actions: ['read'],
    pages: [
      { title: 'Deleted', path: '/console/deleted', actions: ['delete'] },
      { title: 'Freeze and keep', path: '/console/permanence', actions: ['account'] },
      { title: 'Claims', path: '/console/claims', actions: ['admin'] },
    ],
  },
  {
    key: 'mirror',
    title: 'Mirror',
    path: '/console/mirror',
    actions: ['operate'],
    pages: [
      { title: 'Prefetch', path: '/console/prefetch', actions: ['operate'] },
      { title: 'Bundles', path: '/console/bundles', actions: ['operate'] },
      { title: 'Explain a name', path: '/console/explain', actions: ['operate'] },
      { title: 'Failed requests', path: '/console/failures', actions: ['operate'] },
    ],
  },
  {
    key: 'usage',
    title: 'Usage',
    path: '/console/usage',
    actions: ['account'],
    pages: [{ title: 'Storage', path: '/console/storage', actions: ['account'] }],
  },
  {
    key: 'tokens',
    title: 'Tokens',
    path: '/console/tokens',
    actions: ['admin'],
    pages: [
      { title: 'Find a token', path: '/console/tokens/find', actions: ['admin'] },
      { title: 'Sessions', path: '/console/sessions', actions: ['admin'] },
      { title: 'People', path: '/console/people', actions: ['admin'] },
      { title: 'Access', path: '/console/access', actions: ['admin'] },
      { title: 'Rules for a CI', path: '/console/publishers', actions: ['admin'] },
    ],
  },
  {
    key: 'jobs',
    title: 'Jobs',
    path: '/console/jobs',
    actions: ['operate'],
    pages: [{ title: 'Instances', path: '/console/instances', actions: ['operate'] }],
  },
  {
    key: 'audit',
    title: 'Audit',
    path: '/console/audit',
    actions: ['admin', 'operate'],
    pages: [
      { title: 'Failed requests', path: '/console/failures', actions: ['admin', 'operate'] },
      { title: 'Who pulled it', path: '/console/exposed', actions: ['admin', 'operate'] },
    ],
  },
  { key: 'webhooks', title: 'Webhooks', path: '/console/webhooks', actions: ['admin'] },
  { key: 'connect', title: 'Connect', path: '/console/connect', actions: ['read'] },
] as const satisfies readonly (Entry & { key: string; pages?: readonly Entry[] })[];
