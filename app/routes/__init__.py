"""The whole API on one page, path by path: who may call it, and from which plan on.

Printed by tests/test_house.py. ROUTES is the table that serves it, in the order of its matching.

GET    /                                                  PUBLIC
GET    /account                                           PUBLIC
GET    /admin/audit-logs                                  admin
GET    /admin/delivery-attempts                           admin
GET    /admin/invariants                                  admin
GET    /admin/runs                                        admin
GET    /admin/stats                                       admin
GET    /admin/users                                       admin
GET    /admin/workspaces                                  admin
GET    /admin/workspaces/{id}                             admin
PATCH  /admin/workspaces/{id}                             admin
POST   /admin/workspaces/{id}/resume                      admin
POST   /admin/workspaces/{id}/suspend                     admin
GET    /audit-logs                                        audit_logs:read        growth
GET    /audit-logs/export                                 audit_logs:read        growth
GET    /audit-logs/verify                                 audit_logs:read        growth
POST   /auth/email/verification                           MEMBER
POST   /auth/email/verify                                 PUBLIC
POST   /auth/logout                                       MEMBER
GET    /auth/me                                           MEMBER
GET    /auth/oidc/callback                                PUBLIC
GET    /auth/oidc/done                                    PUBLIC
GET    /auth/oidc/login                                   PUBLIC
PATCH  /auth/password                                     MEMBER
POST   /auth/password/forgot                              PUBLIC
POST   /auth/password/reset                               PUBLIC
POST   /auth/refresh                                      PUBLIC
POST   /auth/register                                     PUBLIC
POST   /auth/switch                                       MEMBER
POST   /auth/token                                        PUBLIC
GET    /automations                                       automations:read
POST   /automations                                       automations:write
POST   /automations/check                                 automations:read
POST   /automations/simulate                              automations:read
GET    /automations/{id}                                  automations:read
PATCH  /automations/{id}                                  automations:write
DELETE /automations/{id}                                  automations:write
GET    /automations/{id}/cases                            automations:read
POST   /automations/{id}/cases/run                        automations:read
GET    /automations/{id}/cases/{name}                     automations:read
PUT    /automations/{id}/cases/{name}                     automations:write
DELETE /automations/{id}/cases/{name}                     automations:write
POST   /automations/{id}/duplicate                        automations:write
GET    /automations/{id}/export                           automations:read
GET    /automations/{id}/graph.svg                        automations:read
POST   /automations/{id}/runs                             runs:write
POST   /automations/{id}/simulate                         automations:read
GET    /automations/{id}/versions                         automations:read
GET    /automations/{id}/versions/{version}               automations:read
GET    /automations/{id}/versions/{version}/diff/{other}  automations:read
GET    /automations/{id}/webhook-requests                 automations:read
GET    /automations/{id}/webhook-schema                   automations:read
POST   /automations/{id}/webhook/rotate                   automations:write
POST   /billing/checkout                                  billing:write
GET    /billing/plan                                      billing:read
PATCH  /billing/plan                                      billing:write
POST   /billing/webhooks/stripe                           PUBLIC
GET    /broadcasts                                        broadcasts:read
POST   /broadcasts                                        broadcasts:write
GET    /broadcasts/{id}                                   broadcasts:read
PATCH  /broadcasts/{id}                                   broadcasts:write
DELETE /broadcasts/{id}                                   broadcasts:write
POST   /broadcasts/{id}/cancel                            broadcasts:send
POST   /broadcasts/{id}/pause                             broadcasts:send
POST   /broadcasts/{id}/preview                           broadcasts:read
GET    /broadcasts/{id}/recipients                        broadcasts:read
POST   /broadcasts/{id}/resume                            broadcasts:send
POST   /broadcasts/{id}/schedule                          broadcasts:send
POST   /broadcasts/{id}/test                              broadcasts:write
GET    /confirm/{token}                                   PUBLIC
POST   /confirm/{token}                                   PUBLIC
GET    /console                                           PUBLIC                 unless CONSOLE=off
GET    /console/assets/{name}                             PUBLIC                 unless CONSOLE=off
GET    /console/{screen:path}                             PUBLIC                 unless CONSOLE=off
GET    /contact-events/{id}                               contacts:read
GET    /contacts                                          contacts:read
POST   /contacts                                          contacts:write
PUT    /contacts                                          contacts:write
GET    /contacts/export                                   contacts:read
POST   /contacts/import                                   contacts:write
GET    /contacts/{id}                                     contacts:read
PATCH  /contacts/{id}                                     contacts:write
DELETE /contacts/{id}                                     contacts:write
GET    /contacts/{id}/activity                            contacts:read
POST   /contacts/{id}/events                              contacts:write
GET    /contacts/{id}/explain                             contacts:read
GET    /contacts/{id}/segments                            contacts:read
POST   /contacts/{id}/tags                                contacts:write
DELETE /contacts/{id}/tags/{tag:path}                     contacts:write
PUT    /contacts/{id}/topics/{topicId}                    contacts:write
GET    /definition-schema                                 PUBLIC
POST   /definitions/import                                workflows:write
GET    /docs                                              PUBLIC
GET    /event-endpoints                                   event_endpoints:read
POST   /event-endpoints                                   event_endpoints:write
GET    /event-endpoints/{id}                              event_endpoints:read
PATCH  /event-endpoints/{id}                              event_endpoints:write
DELETE /event-endpoints/{id}                              event_endpoints:write
GET    /event-endpoints/{id}/attempts                     event_endpoints:read
POST   /event-endpoints/{id}/attempts/{attemptId}/replay  event_endpoints:write
POST   /event-endpoints/{id}/replay                       event_endpoints:write
POST   /event-endpoints/{id}/rotate                       event_endpoints:write
POST   /events                                            contacts:write
POST   /events/batch                                      contacts:write
GET    /healthz                                           PUBLIC
GET    /memberships                                       memberships:read
POST   /memberships                                       memberships:write
GET    /memberships/invitations                           memberships:read
POST   /memberships/invitations                           memberships:write
POST   /memberships/invitations/accept                    PUBLIC
POST   /memberships/invitations/decline                   PUBLIC
GET    /memberships/invitations/{id}                      memberships:read
DELETE /memberships/invitations/{id}                      memberships:write
GET    /memberships/{id}                                  memberships:read
PATCH  /memberships/{id}                                  memberships:write
DELETE /memberships/{id}                                  MEMBER
GET    /messages                                          messages:read
POST   /messages                                          messages:write
GET    /messages/delivery-attempts                        messages:read
GET    /messages/delivery-attempts/{id}                   messages:read
POST   /messages/test-email                               messages:write
GET    /messages/{id}                                     messages:read
POST   /messages/{id}/previews                            messages:read
POST   /messages/{id}/resend                              messages:write
POST   /messages/{id}/resolve                             messages:write
GET    /metrics                                           PUBLIC
GET    /names                                             contacts:read
GET    /openapi.json                                      PUBLIC
GET    /preview/{token}                                   PUBLIC
POST   /preview/{token}                                   PUBLIC
POST   /previews                                          MEMBER
GET    /problems/{code}                                   PUBLIC
GET    /readyz                                            PUBLIC
GET    /runs                                              runs:read
GET    /runs/{id}                                         runs:read
POST   /runs/{id}/cancel                                  runs:write
POST   /runs/{id}/replay                                  runs:write
POST   /runs/{id}/retry                                   runs:write
GET    /sandbox                                           PUBLIC                 sandbox only
GET    /sandbox/checkouts/{token}                         PUBLIC                 sandbox only
POST   /sandbox/checkouts/{token}/cancel                  PUBLIC                 sandbox only
POST   /sandbox/checkouts/{token}/complete                PUBLIC                 sandbox only
GET    /sandbox/faults                                    messages:read          sandbox only
POST   /sandbox/faults                                    messages:write         sandbox only
DELETE /sandbox/faults                                    messages:write         sandbox only
GET    /sandbox/messages                                  messages:read          sandbox only
POST   /sandbox/replies                                   messages:write         sandbox only
POST   /sandbox/sign-ins                                  PUBLIC                 sandbox only
GET    /segments                                          contacts:read
POST   /segments                                          contacts:write
POST   /segments/preview                                  contacts:read
GET    /segments/{id}                                     contacts:read
PATCH  /segments/{id}                                     contacts:write
DELETE /segments/{id}                                     contacts:write
GET    /segments/{id}/contacts                            contacts:read
GET    /segments/{id}/uses                                contacts:read
GET    /settings/api-keys                                 api_keys:read
POST   /settings/api-keys                                 api_keys:write
GET    /settings/api-keys/{id}                            api_keys:read
DELETE /settings/api-keys/{id}                            api_keys:write
GET    /settings/channels                                 settings:read
GET    /settings/channels/{channel}                       settings:read
PUT    /settings/channels/{channel}                       settings:write
DELETE /settings/channels/{channel}                       settings:write
POST   /settings/channels/{channel}/verify                settings:write
GET    /settings/sign-in-domains                          settings:read
PUT    /settings/sign-in-domains/{domain}                 workspaces:write
DELETE /settings/sign-in-domains/{domain}                 workspaces:write
GET    /settings/workspace                                settings:read
PATCH  /settings/workspace                                settings:write
DELETE /settings/workspace                                workspaces:write
GET    /suppressions                                      suppressions:read
POST   /suppressions                                      suppressions:write
GET    /suppressions/{id}                                 suppressions:read
DELETE /suppressions/{id}                                 suppressions:write
GET    /tags                                              contacts:read
GET    /templates                                         templates:read
POST   /templates                                         templates:write
POST   /templates/check                                   templates:read
POST   /templates/preview                                 templates:read
GET    /templates/{id}                                    templates:read
PATCH  /templates/{id}                                    templates:write
DELETE /templates/{id}                                    templates:write
POST   /templates/{id}/preview                            templates:read
GET    /templates/{id}/uses                               templates:read
GET    /topics                                            contacts:read
POST   /topics                                            contacts:write
GET    /topics/{id}                                       contacts:read
PATCH  /topics/{id}                                       contacts:write
DELETE /topics/{id}                                       contacts:write
GET    /troubles                                          messages:read
GET    /u/{token}                                         PUBLIC
POST   /u/{token}                                         PUBLIC
POST   /v1/callbacks/resend/{token}                       PUBLIC
POST   /v1/callbacks/twilio/{token}                       PUBLIC
POST   /v1/webhooks/in/{token:path}                       PUBLIC
GET    /webhook-requests/{id}                             runs:read
POST   /webhook-requests/{id}/retry                       runs:write
GET    /workflows                                         workflows:read
POST   /workflows                                         workflows:write
POST   /workflows/check                                   workflows:read
POST   /workflows/simulate                                workflows:read
GET    /workflows/{id}                                    workflows:read
PATCH  /workflows/{id}                                    workflows:write
GET    /workflows/{id}/cases                              workflows:read
POST   /workflows/{id}/cases/run                          workflows:read
GET    /workflows/{id}/cases/{name}                       workflows:read
PUT    /workflows/{id}/cases/{name}                       workflows:write
DELETE /workflows/{id}/cases/{name}                       workflows:write
POST   /workflows/{id}/duplicate                          workflows:write
GET    /workflows/{id}/export                             workflows:read
GET    /workflows/{id}/graph.svg                          workflows:read
POST   /workflows/{id}/runs                               runs:write
POST   /workflows/{id}/simulate                           workflows:read
GET    /workflows/{id}/versions                           workflows:read
GET    /workflows/{id}/versions/{version}                 workflows:read
GET    /workflows/{id}/versions/{version}/diff/{other}    workflows:read
GET    /workflows/{id}/webhook-requests                   workflows:read
GET    /workflows/{id}/webhook-schema                     workflows:read
POST   /workflows/{id}/webhook/rotate                     workflows:write
GET    /workspaces                                        MEMBER
POST   /workspaces                                        MEMBER
GET    /workspaces/{id}                                   MEMBER
"""

from __future__ import annotations

from app.routes import (
    account,
    activity,
    admin,
    api_keys,
    audit_logs,
    automations,
    billing,
    broadcast_acts,
    broadcasts,
    callbacks,
    channels,
    checkouts,
    confirmations,
    console,
    contact_events,
    contact_segments,
    contacts,
    definition_cases,
    definition_files,
    definition_imports,
    event_endpoints,
    explaining,
    identified_contacts,
    imports,
    invitations,
    memberships,
    messages,
    metrics,
    names,
    new_messages,
    passwords,
    preferences,
    previews,
    problems,
    public,
    reference,
    runs,
    sandbox,
    sandbox_faults,
    sandbox_replies,
    sandbox_sign_ins,
    segments,
    sessions,
    settings,
    sign_in_domains,
    simulations,
    single_sign_on,
    suppressions,
    tags,
    templates,
    topic_answers,
    topics,
    tracking,
    troubles,
    versions,
    webhook_requests,
    webhooks,
    workflows,
    workspaces,
)

ROUTES = [
    *webhooks.routes,  # first, for routes are tried in their order and this one is asked most
    *public.routes,
    *metrics.routes,
    *problems.routes,
    *preferences.routes,
    *confirmations.routes,
    *sessions.routes,
    *passwords.routes,
    *single_sign_on.routes,
    *account.routes,
    *invitations.routes,
    *memberships.routes,
    *workspaces.routes,
    *imports.routes,
    *contacts.routes,
    *identified_contacts.routes,
    *contact_events.routes,
    *tracking.routes,
    *activity.routes,
    *explaining.routes,
    *tags.routes,
    *names.routes,
    *segments.routes,
    *contact_segments.routes,
    *topics.routes,
    *topic_answers.routes,
    *broadcasts.routes,
    *broadcast_acts.routes,
    *previews.routes,
    *templates.routes,
    *simulations.routes,
    *automations.routes,
    *workflows.routes,
    *versions.routes,
    *definition_cases.routes,
    *definition_files.routes,
    *definition_imports.routes,
    *webhook_requests.routes,
    *runs.routes,
    *new_messages.routes,
    *messages.routes,
    *troubles.routes,
    *suppressions.routes,
    *event_endpoints.routes,
    *settings.routes,
    *api_keys.routes,
    *sign_in_domains.routes,
    *callbacks.routes,
    *channels.routes,
    *billing.routes,
    *audit_logs.routes,
    *admin.routes,
]
SANDBOX_ROUTES = [
    *sandbox.routes,
    *sandbox_faults.routes,
    *sandbox_replies.routes,
    *sandbox_sign_ins.routes,
    *checkouts.routes,
]  # in production they do not exist, signed in or not
CONSOLE_ROUTES = console.routes  # pages, which no program asks for: CONSOLE=off removes them
ROUTES += reference.routes(ROUTES, SANDBOX_ROUTES)  # which tell of themselves as well
