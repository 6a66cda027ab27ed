import type { z } from 'zod';
import { nameExplanation } from '../../../api/upstreams/explain.ts';
import { protocolWords } from '../../../config/protocols.ts';
import { DomainError } from '../../../runtime/errors.ts';
import { fieldErrors, Form, type Errors } from '../../framework/form.ts';
import { ago, counted, short } from '../../framework/format.ts';
import { html, type Html, type HtmlPart } from '../../framework/html.ts';
import { given, withQuery } from '../../framework/links.ts';
import { may } from '../../framework/layout.ts';
import type { Page, PageCall, PageView } from '../../framework/page.ts';
import { facts, table } from '../../framework/table.ts';
import { addressOf, stateMark } from './mirror.ts';

type Explanation = z.input<typeof nameExplanation>;
type AskedUpstream = Explanation['origin']['upstreams'][number];

const path = '/console/explain';
/** Tags of a digest that a page leads to. */
const maxTags = 10;

/** The address of the page that explains a name, or a version, tag or digest of it. */
export function explainPath(kind: string, name: string, reference?: string): string {
  return withQuery(path, { kind, name, reference });
}

/** From where clients get a package or an image, and why not. */
export const explainPage: Page = {
  path: '/explain',
  section: 'mirror',
  action: 'operate',
  show: async (call): Promise<PageView> => {
    const query = given(call.query, 'kind', 'name', 'reference');
    const view = (errors: Errors, body?: Html) => {
      const form = new Form({ reference: '', kind: 'package', name: '', ...query }, errors);
      const kinds = protocolWords.map(({ kind, word }) => [kind, word] as const);
      return form.view(
        'Explain a name',
        html`<form class="filter" method="get" action="${path}">
            <div>${form.select('kind', 'Kind', kinds)}</div>
            <div>${form.input('name', 'Name', { attributes: html`maxlength="255" required` })}</div>
            <div>${form.input('reference', 'Version, tag or digest', { attributes: html`maxlength="255"` })}</div>
            <button>Explain</button>
          </form>
          ${body ?? html`<p class="empty">Type a name to see whether it is hosted or reserved, which upstreams are asked for it, and what each said.</p>`}`,
        withQuery('/v1/explain', query),
      );
    };
    if (!query['name']) return view({});
    try {
      return view(
        {},
        explanation(await call.api.call('explainName', nameExplanation, { query }), query['reference'], call.now),
      );
    } catch (error) {
      return view(fieldErrors(error));
    }
  },
};

function explanation(story: Explanation, reference: string | undefined, now: number): Html {
  const { kind, name, origin, refused } = story;
  const word = protocolWords.find((each) => each.kind === kind)!.word;
  return html`<p><strong>${conclusionOf(story, word)}</strong></p>
    ${story.verdict && decided(story, now)}
    ${story.verdict && story.verdict !== 'allow' && waiverLink(story, word, reference)}
    ${
      refused &&
      facts([
        'Last failed request',
        html`${ago(refused.time, now)}, ${refused.status} ${refused.code}: ${refused.reason}
          <a href="${withQuery('/console/failures', { kind, name })}">All failed requests</a>`,
      ])
    }
    ${table(
      [{ name: 'Upstream' }, 'Asked', 'State', 'Stored', 'It said last'],
      origin.upstreams.map((each) => [
        html`<a href="${addressOf(each)}">${each.id}</a>`,
        ruleText(each),
        stateMark(each.state),
        counted(each.entries, 'entry', 'entries'),
        lastAnswer(each, now),
      ]),
      { empty: 'No upstream of the settings serves such names.' },
    )}`;
}

/** A link to a request for what would open a reference. The rule `advisories` does not say which advisory. */
function waiverLink({ name, rule }: Explanation, kind: string, references: string | undefined): Html {
  const lifts = rule === 'advisories' ? null : rule;
  const address = withQuery('/console/waivers/new', { kind, name, references, lifts });
  return html`<p><a href="${address}">Request a waiver</a></p>`;
}

/** What the policy decides of a reference. */
function decided(
  { verdict, layer, rule, list, reason, until, evidence = [], audited }: Explanation,
  now: number,
): Html {
  const said = { allow: 'Clients get it.', hold: 'It is held.', deny: 'It is denied.' }[verdict!];
  const whose = { all: 'all accounts', account: 'this account' };
  return facts(
    ['Policy', reason ? `${said.slice(0, -1)}: ${reason}.` : said],
    ...(layer && rule
      ? [['Decided by', `${rule}, in ${list ? `the list ${list}` : `the policy of ${whose[layer]}`}`] as const]
      : []),
    ...(until ? [['Until', ago(until, now)] as const] : []),
    ...(evidence.length > 0 ? [['Evidence', evidence.join('; ')] as const] : []),
    ...(audited
      ? [['In audit mode', audited.reason ? `${audited.verdict}: ${audited.reason}` : audited.verdict] as const]
      : []),
  );
}

/** What the policy decides of a version or digest of mirrored content, for visitors who may see that. */
export async function policySection(
  { api, principal, now }: PageCall,
  kind: string,
  { name, origin, reference, tags = [] }: { name: string; origin: string; reference: string; tags?: readonly string[] },
): Promise<Html | false> {
  if (origin !== 'mirrored' || !may(principal, 'operate')) return false;
  const known = await api
    .call('explainName', nameExplanation, { query: { kind, name, reference } })
    .catch((error: unknown) => {
      if (error instanceof DomainError) return error.message;
      throw error;
    });
  const { word } = protocolWords.find((each) => each.kind === kind)!;
  const links = [reference, ...tags.slice(0, maxTags)];
  return html`<section>
    <h2>Policy</h2>
    ${typeof known === 'string' ? html`<p class="hint">It cannot be decided now: ${known}</p>` : decided(known, now)}
    ${typeof known !== 'string' && known.verdict !== 'allow' && waiverLink(known, word, reference)}
    <p>Explain ${links.map((each) => html`<a href="${explainPath(kind, name, each)}">${short(each, 60)}</a> `)}</p>
  </section>`;
}

function conclusionOf({ name, origin }: Explanation, word: string): string {
  const { hosted, reserved_by: pattern, missing_registry: missing, upstreams } = origin;
  if (missing !== null)
    return `The name begins with ${missing}, which is no upstream. Add it to the setting upstreams.`;
  const isAsked = upstreams.some(({ rule }) => rule === 'asked');
  if (hosted && !isAsked) return `This account hosts ${name}, so no upstream is asked for it.`;
  if (pattern !== null)
    return `${name} is reserved by ${pattern}: no upstream is ever asked for it. Push the ${word} here.`;
  if (!isAsked) return `No upstream may be asked for ${name}, and it is not hosted here.`;
  if (upstreams.some(({ entries }) => entries > 0)) return `${name} comes from an upstream. Something of it is stored.`;
  if (upstreams.every(({ rule, said_not_found: said }) => rule !== 'asked' || said)) {
    return `Each upstream that is asked says that it has no ${name}. Check the spelling.`;
  }
  return `${name} is requested from upstreams in this order. Nothing of it is stored yet.`;
}

function ruleText({ rule, pattern, name_there: there }: AskedUpstream): HtmlPart {
  if (rule === 'asked') return html`yes, for <code>${there}</code>`;
  const why = {
    hosted: 'it is hosted here',
    reserved: `reserved by ${pattern}`,
    excluded: `excluded by ${pattern}`,
    'not included': 'its setting include does not name it',
    'other account': 'it serves other accounts only',
  }[rule];
  return html`no: ${why}`;
}

function lastAnswer(
  { confirmed_at: confirmed, said_not_found: absent, last_failure: failure }: AskedUpstream,
  now: number,
): HtmlPart {
  const failed = failure && html`${ago(failure.time, now)}: ${failure.reason}`;
  if (absent) return html`it has no such name ${failed}`;
  if (failure && (confirmed === null || failure.time > confirmed)) return failed;
  return confirmed === null ? html`<span class="quiet">nothing yet</span>` : html`content, ${ago(confirmed, now)}`;
}

/**
 * Replaces "not found" of a name, which can have many reasons, in the words of `kind`; with `reference`, of a version or digest of a
 * name that is here. Visitors who may explain names are told the reason.
 */
export function explainMissing(
  call: PageCall,
  kind: string,
  name: string,
  reference?: string,
): (error: unknown) => Promise<never> {
  return async (error) => {
    if (!(error instanceof DomainError) || !missing.has(error.name)) throw error;
    const { word } = protocolWords.find((each) => each.kind === kind)!;
    const [shown, of] = [short(name, 255), error.name !== 'NameUnknown' && reference && short(reference, 140)];
    const why = of ? undefined : await whyMissing(call, kind, name, word);
    throw new DomainError(
      'NotFound',
      of
        ? `The ${word} ${shown} is here, but ${of} is not. It may be deleted, written wrong, hidden by a policy, or not downloaded yet.`
        : `${shown} is not stored here. ${why ?? `The ${word} of an upstream has a page after its first download, unless the settings keep its name from upstreams.`}`,
      { detail: { explain: { kind, name: name.slice(0, 255), ...(of && { reference: of }) } } },
    );
  };
}

/** Undefined for a visitor who may not know it, and for what is no name. */
async function whyMissing({ api, principal }: PageCall, kind: string, name: string, word: string) {
  if (!may(principal, 'operate')) return undefined;
  const query = { kind, name: name.slice(0, 255) };
  const story = await api.call('explainName', nameExplanation, { query }).catch((error: unknown) => {
    if (error instanceof DomainError) return undefined;
    throw error;
  });
  // That an upstream can still have it is what visitors are told otherwise.
  const isOpen = story?.origin.upstreams.some(({ rule, said_not_found: said }) => rule === 'asked' && !said);
  return story && !isOpen ? conclusionOf(story, word) : undefined;
}

const missing = new Set(['NotFound', 'NameUnknown', 'ManifestUnknown']);
