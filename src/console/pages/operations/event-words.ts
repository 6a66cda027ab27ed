import { eventTexts, eventTypes, type EventType } from '../../../events/event.ts';
import type { Form } from '../../framework/form.ts';
import { html, type Html } from '../../framework/html.ts';

type GroupOf<Type> = Type extends `${infer Group}.${string}` ? Group : never;

/** What the events of each group are about. */
const subjects: Readonly<Record<GroupOf<EventType>, string>> = {
  package: 'packages',
  advisory: 'advisories',
  image: 'images',
  tag: 'tags',
  manifest: 'manifests',
  permanence: 'what cannot change or be deleted',
  person: 'people who sign in',
  token: 'tokens',
  publisher: 'rules for a CI',
  grant: 'grants',
  claim: 'claims of names',
  account: 'accounts',
  session: 'sessions of the console',
  webhook: 'webhooks',
  job: 'jobs',
  storage: 'the storage',
  sign_in: 'sign-ins',
  upstream: 'upstreams',
  limit: 'limits',
  policy: 'policies',
  waiver: 'waivers',
  promotion: 'promotions',
  known_bad: 'known bad content',
  bundle: 'bundles',
  takeover: 'servers that are replaced',
  exposure: 'pulled content that is vulnerable or bad',
};

const byGroup = Map.groupBy(eventTypes, (type) => type.split('.', 1)[0] as GroupOf<EventType>);

/** The patterns of groups, with what each stands for. */
export const eventGroups = [...byGroup.keys()].map((group) => [`${group}.*`, `all about ${subjects[group]}`] as const);

const words = new Map<string, string>([['*', 'all events'], ...eventGroups, ...Object.entries(eventTexts)]);

/** Patterns of events in words, each with the pattern itself. */
export function eventsText(patterns: readonly string[]): Html {
  return html`${patterns.map(
    (each) =>
      html`<div>${words.get(each) ?? each}${words.has(each) && html` <span class="quiet">${each}</span>`}</div>`,
  )}`;
}

/** The field `event`: all events, all of a group, or some of a group, which are folded while none of them is chosen. */
export function eventFields(form: Form): Html {
  const chosen = new Set(form.values.getAll('event'));
  const box = (pattern: string) => form.choice('event', [pattern, words.get(pattern)!, pattern]);
  return html`<fieldset>
    <legend>Events</legend>
    ${box('*')}
    ${[...byGroup].map(
      ([group, types]) =>
        html`${box(`${group}.*`)}
          <details class="members" ${types.some((each) => chosen.has(each)) && html`open`}>
            <summary>Only some about ${subjects[group]}</summary>
            ${types.map(box)}
          </details>`,
    )}
    ${form.error('events')}
  </fieldset>`;
}
